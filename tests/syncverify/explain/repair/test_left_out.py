"""What did not happen has no line: the statement that kept it from happening is shown."""

import inspect
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from syncverify.explain.case import Case
from syncverify.explain.repair.left_out import left_out
from syncverify.judge.properties import check
from syncverify.playing.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation, LeftOut
from syncverify.subjects.adapters import HooksAdapter, LossModule
from syncverify.subjects.bugbank.bases.plain_grads import CountsHookCalls
from syncverify.subjects.subject import resolve
from tests.programs import one_parameter, violations


class SkipsInABranch(CountsHookCalls):
    def note(self, parameter: nn.Parameter) -> None:
        self.counts[parameter] += 1
        if self.counts[parameter] > self.required and parameter.grad is not None:
            self.reduce(parameter.grad)


class ForgetsTheLast(CountsHookCalls):
    def bind(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters[:-1]:
            hook = parameter.register_post_accumulate_grad_hook(self.note)
            self.handles.append(hook)


class LeavesEarly(CountsHookCalls):
    def note(self, parameter: nn.Parameter) -> None:
        if self.required:
            return
        super().note(parameter)


class HooksCopies(CountsHookCalls):
    def bind(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters:
            copy = nn.Parameter(parameter.detach().clone())
            copy.register_post_accumulate_grad_hook(self.note)


class NeverResets(CountsHookCalls):
    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


class NeverClears(CountsHookCalls):
    def zero_grad(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)


class KeepsHooks(CountsHookCalls):
    def unbind(self) -> None:
        self.zero_grad()


def decided(subject: type, cause: str) -> list[str]:
    specs = (ParameterSpec("p0", (2,), ("R",)),)
    scenario = Scenario(MeshSpec((2,), ("dp",)), specs, (1, 1), 1 << 20)
    found, backend = resolve(subject), SimBackend()
    first, *others = violations(found, scenario)
    same = next((each for each in (first, *others) if each.cause == cause), None)
    violation = same or replace(first, cause=cause)
    lines = left_out(Case(FoundViolation(violation, scenario), found, backend))
    return [str(line).partition(" in ")[2] for line in lines]


NO_LAUNCH = "(in step {} it led to no collective)"
TO_CLEAR = "(which has to clear it)"


@pytest.mark.parametrize(
    ("subject", "cause", "starts", "end"),
    [
        (SkipsInABranch, "not_reduced", ["note: if self.counts[parameter] > "],
            NO_LAUNCH.format(0)),
        (ForgetsTheLast, "not_reduced", ["bind: for parameter in self.parameters[:-1]: "],
            NO_LAUNCH.format(0)),
        (LeavesEarly, "not_reduced", ["note: if self.required: "], NO_LAUNCH.format(0)),
        (HooksCopies, "not_reduced",
            ["bind: copy.register_post_accumulate_grad_hook(self.note) "], NO_LAUNCH.format(0)),
        (NeverResets, "not_reset", ["note: if self.counts[parameter] == "],
            NO_LAUNCH.format(1)),
        (NeverClears, "gradient_left", ["zero_grad: def zero_grad(self) "], TO_CLEAR),
        (KeepsHooks, "hook_left", ["unbind: def unbind(self) "], TO_CLEAR),
        (NeverClears, "replicas_differ", [], ""),
    ],
)  # fmt: skip
def test_what_is_left_out_has_a_place(
    subject: type, cause: str, starts: list[str], end: str
) -> None:
    lines = decided(subject, cause)
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == (
        starts
    )
    assert "".join(lines[-1:]).endswith(end)


class SkipsLargeBuckets(CountsHookCalls):
    """Reduces extras, of which there are none, and no parameter of three elements."""

    extras: ClassVar[list[nn.Parameter]] = []

    def note(self, parameter: nn.Parameter) -> None:
        self.flush()
        self.counts[parameter] += 1
        if self.counts[parameter] == self.required and len(parameter.shape) < 2:
            assert parameter.grad is not None
            self.reduce(parameter.grad)

    def reduce(self, gradient: torch.Tensor) -> None:
        assert isinstance(gradient, DTensor)
        for axis, placement in enumerate(gradient.placements):
            if placement.is_replicate():
                group = gradient.device_mesh.get_group(axis)
                dist.all_reduce(gradient.to_local().detach(), group=group)

    def flush(self) -> None:
        for extra in self.extras:
            dist.all_reduce(extra)


def test_a_loop_that_is_empty_where_all_is_right_is_no_place() -> None:
    specs = (ParameterSpec("p0", (2, 2), ("R",)),)
    scenario = Scenario(MeshSpec((2,), ("dp",)), specs, (1,), 1 << 20)
    subject, backend = resolve(SkipsLargeBuckets), SimBackend()
    first, *_ = violations(subject, scenario)
    places = left_out(Case(FoundViolation(first, scenario), subject, backend))
    assert [each.line.line.function for each in places] == ["note"]


# A line that waits for some of the handles is named, and never one that waits for all.


ONE_ELEMENT = one_parameter(1, "p0", ())


class Handles:
    """Starts a reduction in the hook of each parameter, and waits for some of them at the end."""

    first = slice(0, -1)

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.pending = list[Any]()
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self.reduce)

    def reduce(self, parameter: Any) -> None:
        self.pending.append(dist.all_reduce(parameter.grad, async_op=True))

    def finish(self) -> None:
        for work in self.pending[self.first]:
            work.wait()
        self.pending.clear()


class Unwaited(Handles):
    first = slice(0, 0)


class HandlesSubject(HooksAdapter):
    made: type[Handles] = Handles

    def wrap(self, module: LossModule) -> Handles:
        return self.made(self.parameters)

    def synchronize(self) -> None:
        self.wrapped.finish()


class UnwaitedSubject(HandlesSubject):
    made = Unwaited


def missing(adapter: type[HandlesSubject], scenario: Scenario) -> tuple[LeftOut, ...]:
    subject, backend = resolve(adapter), SimBackend()
    run = backend.run(scenario, subject)
    found = check(scenario, run, subject.capabilities)
    (race,) = (each for each in found if each.cause == "read_before_reduced")
    return left_out(Case(FoundViolation(race, scenario), subject, backend))


@pytest.mark.slow
def test_the_wait_for_others_is_named() -> None:
    lines, first = inspect.getsourcelines(Handles)
    launch, wait = (
        first + next(n for n, line in enumerate(lines) if call in line)
        for call in ("all_reduce(", "work.wait()")
    )
    (named,) = missing(HandlesSubject, ONE_ELEMENT)
    assert (named.line.line.number, named.line.code) == (wait, "work.wait()")
    place = f"{named.line.line.path}:{launch} in reduce"
    assert named.why == (
        f"waits for 1 of the 2 collectives of {place}, in a scenario with 2 parameters"
    )


@pytest.mark.slow
def test_without_any_wait_none_is_named() -> None:
    assert missing(UnwaitedSubject, ONE_ELEMENT) == ()
