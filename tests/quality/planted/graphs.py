"""Planted defects of hooks, beside those of the bug bank."""

from collections import Counter
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from syncverify.subjects.bugbank.autograd import (
    CountsArrivals,
    CountsCallsOfNestedBackwards,
    HoldsFirstGradient,
)
from syncverify.subjects.bugbank.bases.main_grads import MainGrads
from syncverify.subjects.bugbank.bases.placements import local_grad, reduce_groups
from syncverify.subjects.bugbank.bases.plain_grads import CountsHookCalls, PlainGrads
from tests.quality.planted.graph_words import (
    BY_HAND,
    EARLY,
    FUSED,
    REENTRANT,
    of,
    shown,
)
from tests.quality.planted.watching import HearsArrivals, HearsGradients


@shown(
    "backward=hooks_of_others", "backward=grad_beside", cause="scaled", beside=[FUSED]
)
class TakesArrivals(HearsArrivals):
    """Sums the gradients that its tensor hook sees, which later hooks replace."""

    def bind(self) -> None:
        super().bind()
        self.sums: dict[nn.Parameter, torch.Tensor] = {}

    def arrived(self, parameter: nn.Parameter, gradient: torch.Tensor) -> None:
        dtype = parameter.grad_dtype or parameter.dtype
        seen = gradient.detach().to(dtype)
        before = self.sums.get(parameter)
        self.sums[parameter] = seen.clone() if before is None else before + seen

    def wait(self) -> None:
        for parameter, summed in self.sums.items():
            parameter.grad = summed
        super().wait()

    def zero_grad(self) -> None:
        super().zero_grad()
        self.sums = {}


@shown(
    *REENTRANT,
    "backward=inputs_in_turn",
    cause="reduced_early",
    beside=["backward=on_threads", BY_HAND],
)
class CountsEnds(CountsCallsOfNestedBackwards):
    """Takes each end of a backward for the end of a micro-batch."""

    def bind(self) -> None:
        self.num_ends, self.is_queued = 0, False
        super().bind()

    def note(self, parameter: nn.Parameter) -> None:
        if not self.is_queued:
            self.is_queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self.end)

    def end(self) -> None:
        self.is_queued = False
        self.num_ends += 1
        if self.num_ends == self.required:
            PlainGrads.wait(self)

    def zero_grad(self) -> None:
        super().zero_grad()
        self.num_ends = 0


@shown(EARLY, cause="reduced_early", beside=[BY_HAND])
class ReducesInItsHook(CountsHookCalls):
    """Reduces in its own hook, before later hooks of the user run."""


# The common gradient is small beside the gradient of the other parameter.
@shown("use=added_to_another", cause="unexplained", beside=[FUSED])
class ReducesWhatTensorHooksGet(HearsArrivals):
    """Reduces gradients in place in tensor hooks; another parameter may get the same tensor."""

    capabilities = replace(PlainGrads.capabilities, reduces_each_micro_batch=True)

    def arrived(self, parameter: nn.Parameter, gradient: torch.Tensor) -> None:
        self.reduce(gradient)

    def wait(self) -> None:
        pass


@shown("backward=split_by_hand")
class ReducesWhatHooksSaw(HearsGradients):
    """Reduces the gradients that its hooks saw, and no gradient that was added by hand."""

    def bind(self) -> None:
        super().bind()
        self.seen: set[nn.Parameter] = set()

    def accumulated(self, parameter: nn.Parameter) -> None:
        self.seen.add(parameter)

    def wait(self) -> None:
        for parameter in self.parameters:
            if parameter in self.seen:
                self.reduce(parameter.grad)

    def zero_grad(self) -> None:
        super().zero_grad()
        self.seen = set()


class HearsMarks(ReducesWhatHooksSaw):
    """Correct: the caller marks the gradients that no hook saw."""

    def mark_ready(self, *parameters: nn.Parameter) -> None:
        self.seen.update(parameters)


class KeepsZeros(PlainGrads):
    """Correct: `.grad` is there from `bind()` on, with zeros before a step's first gradient."""

    def bind(self) -> None:
        for parameter in self.parameters:
            dtype = parameter.grad_dtype or parameter.dtype
            parameter.grad = torch.zeros_like(parameter, dtype=dtype)

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            self.clear(parameter)

    def clear(self, parameter: nn.Parameter) -> None:
        with torch.no_grad():
            local_grad(parameter).zero_()

    def unbind(self) -> None:
        super().unbind()
        PlainGrads.zero_grad(self)


@shown("use=fused_accumulation", cause="micro_batch_missing")
class ClearsAtFirstGradient(HearsArrivals, KeepsZeros):
    """Clears `.grad` in a tensor hook as the step's first gradient comes.

    A function that adds to `.grad` by itself has added before the hook runs.
    """

    def bind(self) -> None:
        super().bind()
        self.started: set[nn.Parameter] = set()

    def arrived(self, parameter: nn.Parameter, gradient: torch.Tensor) -> None:
        if parameter not in self.started:
            self.started.add(parameter)
            self.clear(parameter)

    def zero_grad(self) -> None:
        super().zero_grad()
        self.started.clear()


class HasMainGrads(MainGrads):
    """Correct: functions may add to `main_grad`, and their results are dropped."""

    capabilities = PlainGrads.capabilities

    def bind(self) -> None:
        super().bind()
        for bucket in self.buckets:
            for parameter, slot in bucket.slots.items():
                parameter.main_grad = slot
                parameter.grad_added_to_main_grad = False

    def on_accumulated(self, slot: torch.Tensor, parameter: Any) -> None:
        if parameter.grad_added_to_main_grad:
            local_grad(parameter).zero_()
            self.moved[parameter] += 1
        super().on_accumulated(slot, parameter)

    def mark_ready(self, *parameters: Any) -> None:
        for parameter in parameters:
            self.on_accumulated(parameter.main_grad, parameter)

    def zero_grad(self) -> None:
        super().zero_grad()
        for bucket in self.buckets:
            bucket.buffer.zero_()
            for parameter in bucket.slots:
                parameter.grad_added_to_main_grad = False

    def unbind(self) -> None:
        for parameter in self.moved:
            del parameter.main_grad, parameter.grad_added_to_main_grad
        super().unbind()


@shown("use=fused_main_grad", cause="placeholder_added")
class AddsPlaceholders(HasMainGrads):
    """Adds the result of a function that has added to `main_grad` by itself."""

    def on_accumulated(self, slot: torch.Tensor, parameter: Any) -> None:
        if parameter.grad_added_to_main_grad:
            self.moved[parameter] += 1
        MainGrads.on_accumulated(self, slot, parameter)


@shown(
    "backward=hook_reads_grad",
    cause="touched_in_flight",
    violates="bucket_is_exclusive_while_reducing",
    beside=[*REENTRANT, EARLY, BY_HAND],
)
class RefusesLateWrites(HearsGradients):
    """Starts sums in its own hook and refuses a later write; it does not see a later read."""

    def bind(self) -> None:
        self.counts: Counter[nn.Parameter] = Counter()
        self.works: list[tuple[torch.Tensor, int, dist.Work]] = []
        super().bind()

    def accumulated(self, parameter: nn.Parameter) -> None:
        self.counts[parameter] += 1
        if self.counts[parameter] == self.required:
            self.start(parameter)

    def start(self, parameter: nn.Parameter) -> None:
        gradient = local_grad(parameter).detach()
        for group in reduce_groups(parameter):
            work = dist.all_reduce(gradient, group=group, async_op=True)
            self.works.append((gradient, gradient._version, work))

    def wait(self) -> None:
        for gradient, version, work in self.works:
            if gradient._version != version:
                raise RuntimeError(
                    "expected no write after the last backward of a step"
                )
            work.wait()
        self.works.clear()

    def zero_grad(self) -> None:
        super().zero_grad()
        self.counts.clear()


class StartsAfterBackward(RefusesLateWrites):
    """Correct: sums start in `wait()`, when all hooks have run."""

    def accumulated(self, parameter: nn.Parameter) -> None:
        pass

    def wait(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None:
                self.start(parameter)
        super().wait()


OTHERS = [
    of(
        CountsCallsOfNestedBackwards,
        *REENTRANT,
        cause="reduced_early",
        beside=[EARLY, BY_HAND],
    ),
    of(
        CountsArrivals,
        *REENTRANT,
        "backward=grad_beside",
        cause="reduced_early",
        beside=[EARLY, BY_HAND],
    ),
    of(
        HoldsFirstGradient,
        "backward=create_graph",
        cause="micro_batch_missing",
        beside=[BY_HAND],
    ),
]
