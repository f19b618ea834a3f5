"""Backwards that the hooks of a synchronizer misread."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from typing_extensions import override

from syncverify.subjects.bugbank.bases.plain_grads import CountsHookCalls, PlainGrads
from syncverify.subjects.bugbank.bases.view_buckets import (
    FlagsMicroBatches,
    ViewBuckets,
)
from syncverify.subjects.bugbank.entry import reported


@reported(
    "autograd-grad-bypasses-hooks",
    "pytorch/pytorch#47562",
    trigger="2 ranks, torch.autograd.grad beside backward",
    violates="accumulation_is_local_until_reduced",
    cause="reduced_early",
    # A hook on `.grad` is not called where the caller adds the gradient.
    or_cause="not_reduced",
    twin=PlainGrads,
)
class CountsArrivals(CountsHookCalls):
    """Counts in a tensor hook, which `torch.autograd.grad` calls as well."""

    capabilities = PlainGrads.capabilities

    @override
    def bind(self) -> None:
        super().bind()
        self.arrivals = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters:
            hook = partial(self.count_arrival, parameter)
            self.handles.append(parameter.register_hook(hook))

    def count_arrival(self, parameter: nn.Parameter, _gradient: torch.Tensor) -> None:
        """Count a gradient that comes to a parameter."""
        self.arrivals[parameter] += 1

    @override
    def note(self, parameter: nn.Parameter) -> None:
        arrived = self.arrivals[parameter] == self.required
        if arrived and parameter.grad is not None:
            self.reduce(parameter.grad)

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.arrivals = dict.fromkeys(self.parameters, 0)


@reported(
    "create-graph-detaches-view",
    "pytorch/pytorch#63812",
    trigger="2 micro-batches with create_graph=True",
    violates="gradient_equals_reference",
    cause="micro_batch_missing",
    # A hook on `.grad` is not called where the caller adds the gradient: nothing is held.
    or_cause="not_reduced",
)
class HoldsFirstGradient(PlainGrads):
    """Remembers the gradient tensor, which `create_graph=True` replaces."""

    @override
    def bind(self) -> None:
        self.held: dict[nn.Parameter, torch.Tensor] = {}
        for parameter in self.parameters:
            self.register(parameter, self.hold)

    def hold(self, parameter: nn.Parameter) -> None:
        """Keep the first gradient tensor of a step."""
        if parameter not in self.held and parameter.grad is not None:
            self.held[parameter] = parameter.grad

    @override
    def wait(self) -> None:
        for parameter, gradient in self.held.items():
            self.reduce(gradient)
            parameter.grad = gradient.detach()

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.held = {}


@reported(
    "graph-captures-flag",
    "pytorch/torchtitan#4505",
    trigger="2 ranks, 2 micro-batches",
    violates="gradient_equals_reference",
    cause="not_reduced",
)
class CapturesFlag(FlagsMicroBatches):
    """The flag of the first micro-batch is captured, and replayed with all others."""

    @override
    def bind(self) -> None:
        self.captured: bool | None = None
        super().bind()

    @override
    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        if self.captured is None:
            self.captured = is_last
        super().run_micro_batch(compute_loss, is_last=self.captured)


@reported(
    "reentrant-checkpoint-fires-twice",
    "pytorch/pytorch#24005",
    trigger="2 ranks, a weight in two reentrant checkpoints",
    violates="accumulation_is_local_until_reduced",
    cause="reduced_early",
    # No call comes where the caller adds the gradient to `.grad`.
    or_cause="not_reduced",
    twin=PlainGrads,
)
class CountsCallsOfNestedBackwards(CountsHookCalls):
    """A hook is taken to be called once a micro-batch; nested backwards call it again."""

    capabilities = PlainGrads.capabilities


@reported(
    "static-graph-count-inflated",
    "pytorch/pytorch#187732",
    trigger="2 ranks, 2 steps of 2 micro-batches",
    violates="gradient_equals_reference",
    cause="not_reduced",
    # A count that is left over meets its number too early.
    or_cause="reduced_early",
)
class KeepsCounts(ViewBuckets):
    """Counts of micro-batches that were not to be reduced stay, and nothing fits again."""

    @override
    def zero_grad(self) -> None:
        kept = [bucket.counts.copy() for bucket in self.buckets]
        super().zero_grad()
        if self.required > 1:
            for bucket, counts in zip(self.buckets, kept, strict=True):
                bucket.counts = counts
