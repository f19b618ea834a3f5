"""Terms of a sum that are lost, rounded, or added twice."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Placement
from typing_extensions import override

from syncverify.scenario.contract import Capabilities
from syncverify.subjects.bugbank.bases.main_grads import Bucket, MainGrads
from syncverify.subjects.bugbank.bases.placements import Groups, local_grad
from syncverify.subjects.bugbank.bases.view_buckets import ViewBuckets
from syncverify.subjects.bugbank.entry import reported


class KeepsEarlierSums(MainGrads):
    """Right: the sum of earlier micro-batches is added before anything is reduced."""

    @override
    def bind(self) -> None:
        self.earlier: dict[nn.Parameter, torch.Tensor] = {}
        super().bind()

    @override
    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        if self.moved[parameter]:
            self.earlier[parameter].add_(slot)
        else:
            self.earlier[parameter] = torch.zeros_like(slot)
        slot.copy_(local_grad(parameter))
        parameter.grad = None
        self.moved[parameter] += 1

    @override
    def reduce(self, bucket: Bucket) -> None:
        self.add_earlier(bucket)
        super().reduce(bucket)

    def add_earlier(self, bucket: Bucket) -> None:
        """Add the sums of all micro-batches but the last."""
        for parameter, slot in bucket.slots.items():
            slot.add_(self.earlier[parameter])


@reported(
    "accumulate-after-outer-reduce",
    "pytorch/pytorch#125484",
    trigger="2 ranks, 2 micro-batches",
    violates="gradient_equals_reference",
    cause="rank_contribution_missing",
)
class AddsEarlierSumsAfterwards(KeepsEarlierSums):
    """The sum of earlier micro-batches is added to the reduced gradient."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        MainGrads.reduce(self, bucket)
        self.add_earlier(bucket)


@reported(
    "flush-reduces-what-is-reduced",
    "pytorch/pytorch#115967",
    trigger="2 ranks",
    violates="gradient_equals_reference",
    cause="reduced_twice",
)
class ReducesWhatIsReduced(ViewBuckets):
    """wait() flushes buckets without work in flight: those that it just finished."""

    @override
    def wait(self) -> None:
        super().wait()
        for bucket in self.buckets:
            if bucket.work is None:
                self.launch(bucket)
                self.finish(bucket)


@reported(
    "low-precision-accumulator",
    "deepspeedai/DeepSpeed#1800",
    trigger="a bfloat16 parameter with float32 gradients",
    violates="unreduced_stay_local",
    cause="rounded",
)
class AccumulatesInParameterDtype(MainGrads):
    """Buckets have the parameter's dtype although its gradient has another."""

    capabilities = Capabilities(right=frozenset({"dtype=own gradient dtype"}))

    @override
    def dtype_of(self, parameter: nn.Parameter) -> torch.dtype:
        return parameter.dtype


@reported(
    "partial-double-reduced",
    "pytorch/torchtitan#2106",
    trigger="2 ranks, a gradient that arrives as Partial",
    violates="accumulation_is_local_until_reduced",
    cause="reduced_twice",
)
class RedistributesWhatArrives(MainGrads):
    """A partial gradient is reduced when it arrives, and again with its bucket."""

    features = frozenset({"placement=partial"})

    @override
    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        if isinstance(parameter.grad, DTensor) and isinstance(parameter, DTensor):
            parameter.grad = reduced(parameter.grad, parameter.placements)
        super().on_accumulated(slot, parameter)


def reduced(grad: DTensor, placements: Sequence[Placement]) -> DTensor:
    """Redistribute axis by axis: torch warns where several are reduced at once."""
    for axis in range(len(placements)):
        left = grad.placements[axis + 1 :]
        grad = grad.redistribute(placements=[*placements[: axis + 1], *left])
    return grad


@reported(
    "reduce-dtype-skips-second-leg",
    "pytorch/pytorch#190627",
    trigger="a mesh of (2, 2), sums that bfloat16 cannot hold",
    violates="gradient_equals_reference",
    cause="rounded",
)
class ReducesFirstAxisInBfloat16(MainGrads):
    """The first of two reductions sums in bfloat16, the second in full precision."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        for index, group in enumerate(bucket.groups):
            narrow = index == 0 and len(bucket.groups) > 1
            sent = bucket.buffer.bfloat16() if narrow else bucket.buffer
            dist.all_reduce(sent, group=group)
            bucket.buffer.copy_(sent)


@reported(
    "replicated-param-not-summed-on-tp",
    "NVIDIA/Megatron-LM#1446",
    trigger="2 ranks, a parameter of one dim",
    violates="gradient_equals_reference",
    cause="not_reduced",
)
class SkipsVectors(ViewBuckets):
    """Biases and norm weights, being small, are taken for local."""

    @override
    def groups_of(self, parameter: nn.Parameter) -> Groups:
        return () if parameter.ndim == 1 else super().groups_of(parameter)


class ReducesToRoot(MainGrads):
    """Right: one rank of each group sums up, and sends the sum to the others."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        for group in bucket.groups:
            output = self.output(bucket.buffer, is_root=group.rank() == 0)
            dist.reduce(output, group=group, group_dst=0)
            dist.broadcast(output, group=group, group_src=0)
            bucket.buffer.copy_(output)

    def output(self, gradient: torch.Tensor, *, is_root: bool) -> torch.Tensor:
        """Return the memory in which the root sums up; it holds the rank's own part."""
        return gradient.clone()


@reported(
    "root-input-not-contributed",
    "meta-pytorch/torchcomms#477",
    trigger="2 ranks",
    violates="gradient_equals_reference",
    cause="rank_contribution_missing",
)
class ForgetsInputOfRoot(ReducesToRoot):
    """The root sums into new memory, without its own part."""

    @override
    def output(self, gradient: torch.Tensor, *, is_root: bool) -> torch.Tensor:
        return torch.zeros_like(gradient) if is_root else gradient.clone()


@reported(
    "size1-branch-overwrites",
    "ServiceNow/Fast-LLM#551",
    trigger="1 rank, 2 micro-batches",
    violates="unreduced_stay_local",
    cause="micro_batch_missing",
)
class OverwritesUnreduced(MainGrads):
    """Every micro-batch overwrites the slot of a gradient without a reduction."""

    @override
    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        if not self.groups_of(parameter):
            self.moved[parameter] = 0
        super().on_accumulated(slot, parameter)


@reported(
    "size1-group-self-add",
    "NVIDIA/Megatron-LM#6660",
    trigger="1 rank",
    violates="unreduced_stay_local",
    cause="scaled",
)
class AddsResultToItself(MainGrads):
    """A group of one rank returns its input, which is added to the sum it already is."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        super().reduce(bucket)
        if not bucket.groups:
            reduced = bucket.buffer  # nothing to exchange
            bucket.buffer.add_(reduced)


@reported(
    "to-local-drops-partial",
    "pytorch/torchtitan#2532",
    trigger="2 ranks, a gradient that is labelled Replicate",
    violates="gradient_equals_reference",
    cause="not_reduced",
)
class TrustsLabels(MainGrads):
    """A gradient labelled Replicate counts as complete: only Partial is summed."""

    features = frozenset({"placement=partial"})

    @override
    def bind(self) -> None:
        self.partial: set[nn.Parameter] = set()
        super().bind()

    @override
    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        gradient = parameter.grad
        if isinstance(gradient, DTensor) and any(
            placement.is_partial() for placement in gradient.placements
        ):
            self.partial.add(parameter)
        super().on_accumulated(slot, parameter)

    @override
    def reduce(self, bucket: Bucket) -> None:
        for parameter, slot in bucket.slots.items():
            if parameter in self.partial:
                for group in bucket.groups:
                    dist.all_reduce(slot, group=group)
