"""Gradients and parameters that no longer lie where they lay at `bind()`."""

from collections.abc import Callable

import torch
from torch import nn
from typing_extensions import override

from syncverify.subjects.bugbank.bases.careful import Careful
from syncverify.subjects.bugbank.bases.main_grads import MainGrads
from syncverify.subjects.bugbank.bases.placements import slices
from syncverify.subjects.bugbank.bases.plain_grads import (
    CountsHookCalls,
    PlainGrads,
    ReducesEachMicroBatch,
)
from syncverify.subjects.bugbank.bases.view_buckets import (
    AveragedViewBuckets,
    Bucket,
    ViewBuckets,
)
from syncverify.subjects.bugbank.entry import reported


@reported(
    "accumulator-reset-each-backward",
    "allenai/open-instruct#1498",
    trigger="2 micro-batches",
    violates="unreduced_stay_local",
    cause="micro_batch_missing",
)
class KeepsLastMicroBatchOnly(MainGrads):
    """Every backward is taken for the first of a step, and overwrites the others."""

    @override
    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        self.moved[parameter] = 0
        super().on_accumulated(slot, parameter)


class KeepsGradients(PlainGrads):
    """Right: a batch of another length changes nothing about gradients."""

    capabilities = CountsHookCalls.capabilities

    @override
    def bind(self) -> None:
        self.num_run = 0

    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        """Run a micro-batch; every other one is of another length."""
        if self.num_run % 2:
            self.prepare_for_length()
        self.num_run += 1
        compute_loss().backward()

    def prepare_for_length(self) -> None:
        """Need nothing."""

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.num_run = 0


@reported(
    "grad-nulled-between-microbatches",
    "NVIDIA-NeMo/Automodel#3530",
    trigger="2 micro-batches of different lengths",
    violates="accumulation_is_local_until_reduced",
    cause="micro_batch_missing",
)
class DropsGradientsForNewLength(KeepsGradients):
    """A batch of another length makes the stage start over, without its gradients."""

    @override
    def prepare_for_length(self) -> None:
        PlainGrads.zero_grad(self)


@reported(
    "multi-model-accumulate",
    "huggingface/accelerate#1708",
    trigger="2 ranks, 2 groups of parameters",
    violates="accumulation_is_local_until_reduced",
    cause="reduced_early",
    # A count that goes up by two never meets an odd number.
    or_cause="not_reduced",
)
class CountsForAllModels(ViewBuckets):
    """Two models count their micro-batches in one place, which counts twice as fast."""

    @override
    def is_ready(self, bucket: Bucket) -> bool:
        models = len(self.param_groups)
        return all(
            bucket.counts[p] * models == self.required for p in bucket.parameters
        )


@reported(
    "nested-wrapper-still-syncs",
    "meta-pytorch/torchrec#4121",
    trigger="2 ranks",
    violates="each_bucket_reduced_once_per_step",
    cause="reduced_twice",
)
class ReducesAgainInWait(AveragedViewBuckets):
    """A wrapper inside of a wrapper reduces too, and a mean of means hides it."""

    @override
    def wait(self) -> None:
        for bucket in self.buckets:
            self.average(bucket)
            self.launch(bucket)
            self.average(bucket)

    @override
    def average(self, bucket: Bucket) -> None:
        self.finish(bucket)
        super().average(bucket)


@reported(
    "no-sync-used-map-lost",
    "pytorch/pytorch#69031",
    trigger="2 micro-batches, of which the last does not use the parameter",
    violates="unreduced_stay_local",
    cause="erased",
)
class ForgetsEarlierMicroBatches(Careful):
    """A parameter that the last micro-batch does not use counts as unused in the whole step."""

    features = frozenset({"used=not_in_last_micro_batch"})

    @override
    def launch(self, bucket: Bucket) -> None:
        for parameter, part in slices(bucket.buffer, bucket.parameters):
            if bucket.counts[parameter] < self.required:
                part.zero_()
        super().launch(bucket)


class AddsOnHost(ReducesEachMicroBatch):
    """Right: reduced gradients are added to a sum on the host."""

    @override
    def add(self, parameter: nn.Parameter, reduced: torch.Tensor) -> None:
        if parameter not in self.sums:
            self.sums[parameter] = torch.zeros_like(reduced, device="cpu")
        self.offload(reduced.cpu(), self.sums[parameter])

    def offload(self, reduced: torch.Tensor, summed: torch.Tensor) -> None:
        """Add up on the host."""
        summed.add_(reduced)


@reported(
    "offload-overwrites-accumulated",
    "pytorch/pytorch#73535",
    trigger="2 micro-batches that are reduced each",
    violates="unreduced_stay_local",
    cause="micro_batch_missing",
)
class OverwritesOnHost(AddsOnHost):
    """Reduced gradients replace the sum on the host."""

    @override
    def offload(self, reduced: torch.Tensor, summed: torch.Tensor) -> None:
        summed.copy_(reduced)


class TrustsViews(Careful):
    """Views are not checked: once `.grad` is None, the next gradient lies outside of the bucket."""

    features = frozenset({"event=set_to_none"})

    @override
    def check_view(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        pass


@reported(
    "param-storage-swapped-after-bind",
    "pytorch/pytorch#104336",
    trigger="parameters that move after bind(), 2 steps",
    violates="gradient_equals_reference",
    cause="view_lost",
    twin=Careful,
)
class TrustsViewsOfMoved(TrustsViews):
    """Gradients are no longer views once their parameters were moved."""

    features = frozenset({"event=move"})


@reported(
    "set-to-none-breaks-view",
    "facebookresearch/fairscale#354",
    trigger="2 ranks, 2 steps",
    violates="gradient_equals_reference",
    cause="view_lost",
)
class DropsViews(ViewBuckets):
    """zero_grad() sets gradients to None; the next ones are allocated elsewhere."""

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                parameter.grad = None
