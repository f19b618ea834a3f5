"""What did not happen has no line: the statement that kept it from happening is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from typing_extensions import override

from syncverify.backends.sim import SimBackend
from syncverify.bugbank.bases.plain_grads import CountsHookCalls
from syncverify.judge.evidence import Evidence
from syncverify.judge.properties import check
from syncverify.judge.violation import Violation
from syncverify.repair.left_out import left_out
from syncverify.repair.skipped_launch import skipped_launches
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from syncverify.subjects.subject import resolve
from syncverify.trace.source_lines import SourceLine


class SkipsInABranch(CountsHookCalls):
    @override
    def note(self, parameter: nn.Parameter) -> None:
        self.counts[parameter] += 1
        if self.counts[parameter] > self.required and parameter.grad is not None:
            self.reduce(parameter.grad)


class ForgetsTheLast(CountsHookCalls):
    @override
    def bind(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters[:-1]:
            hook = parameter.register_post_accumulate_grad_hook(self.note)
            self.handles.append(hook)


class LeavesEarly(CountsHookCalls):
    @override
    def note(self, parameter: nn.Parameter) -> None:
        if self.required:
            return
        super().note(parameter)


class HooksCopies(CountsHookCalls):
    @override
    def bind(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters:
            copy = nn.Parameter(parameter.detach().clone())
            copy.register_post_accumulate_grad_hook(self.note)


class NeverResets(CountsHookCalls):
    @override
    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


class NeverClears(CountsHookCalls):
    @override
    def zero_grad(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)


class KeepsHooks(CountsHookCalls):
    @override
    def unbind(self) -> None:
        self.zero_grad()


def decided(subject: type, cause: str) -> list[str]:
    specs = (ParameterSpec("p0", (2,), ("R",)),)
    scenario = Scenario(MeshSpec((2,), ("dp",)), specs, (1, 1), 1 << 20)
    found, backend = resolve(subject), SimBackend()
    run = backend.run(scenario, found)
    first, *others = check(scenario, run, found.capabilities)
    same = next((each for each in (first, *others) if each.cause == cause), None)
    violation = same or replace(first, cause=cause)
    lines = left_out(FoundViolation(violation, scenario), found, backend)
    return [str(line).partition(" in ")[2] for line in lines]


NO_LAUNCH = "(in step {} it led to no collective)"
TO_CLEAR = "(which has to clear it)"


@pytest.mark.parametrize(
    ("subject", "cause", "starts", "end"),
    [
        (
            SkipsInABranch,
            "not_reduced",
            ["note: if self.counts[parameter] > "],
            NO_LAUNCH.format(0),
        ),
        (
            ForgetsTheLast,
            "not_reduced",
            ["bind: for parameter in self.parameters[:-1]: "],
            NO_LAUNCH.format(0),
        ),
        (LeavesEarly, "not_reduced", ["note: if self.required: "], NO_LAUNCH.format(0)),
        (
            HooksCopies,
            "not_reduced",
            ["bind: copy.register_post_accumulate_grad_hook(self.note) "],
            NO_LAUNCH.format(0),
        ),
        (
            NeverResets,
            "not_reset",
            ["note: if self.counts[parameter] == "],
            NO_LAUNCH.format(1),
        ),
        (NeverClears, "gradient_left", ["zero_grad: def zero_grad(self) "], TO_CLEAR),
        (KeepsHooks, "hook_left", ["unbind: def unbind(self) "], TO_CLEAR),
        (NeverClears, "replicas_differ", [], ""),
    ],
)
def test_what_is_left_out_has_a_place(
    subject: type, cause: str, starts: list[str], end: str
) -> None:
    lines = decided(subject, cause)
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == (
        starts
    )
    assert "".join(lines[-1:]).endswith(end)


SOURCE = """\
def launch(bucket):
    for group in bucket.groups:
        with bucket.stream:
            dist.all_reduce(bucket.flat, group=group)

def note(bucket):
    if bucket.skip: return
    launch(bucket)

def loop(buckets):
    for bucket in buckets:
        if bucket.empty:
            continue
        dist.reduce_scatter_tensor(bucket.out, bucket.flat)
"""


@pytest.mark.parametrize(
    ("ran", "place"),
    [
        ({2}, (2, "launch")),
        ({7}, (7, "note")),
        ({7, 8}, None),
        ({11, 12, 13}, (12, "loop")),
        ({11}, (11, "loop")),
        ({11, 12, 14}, None),
    ],
)
def test_the_last_statement_that_ran_is_the_one(
    tmp_path: Path, ran: set[int], place: tuple[int, str] | None
) -> None:
    file = tmp_path / "source.py"
    file.write_text(SOURCE, "utf-8")
    found = [*skipped_launches({str(file): ran})]
    assert found == ([SourceLine(str(file), *place)] if place else [])


def found_in(step: int, cause: str, *, is_smallest: bool) -> FoundViolation:
    scenario = Scenario(
        MeshSpec((2,), ("dp",)), (ParameterSpec("p0", (2,), ("R",)),), (1, 2), 1 << 20
    )
    violation = Violation("a property", cause, "", (0,), evidence=Evidence(step=step))
    return FoundViolation(violation, scenario, is_smallest=is_smallest)


def test_a_step_that_is_wrong_after_a_right_one_alone_starts_wrongly() -> None:
    assert found_in(1, "reduced_early", is_smallest=True).starts_wrongly
    assert not found_in(0, "reduced_early", is_smallest=True).starts_wrongly
    assert not found_in(1, "reduced_early", is_smallest=False).starts_wrongly
    assert not found_in(1, "misplaced", is_smallest=True).starts_wrongly


EMPTY_LOOP = """
def wait(self):
    for extra in self.extras:
        dist.all_reduce(extra)
    for bucket in self.buckets:
        if len(bucket) > 1:
            continue
        dist.all_reduce(bucket.buffer)
"""


@pytest.mark.parametrize(
    ("ran", "places"),
    [
        ({3, 5, 6, 7}, [6]),  # the function went on, to the condition
        ({3, 5}, [3, 5]),  # two loops, and no other place
        ({3, 5, 6, 8}, [3]),
    ],
)
def test_an_empty_loop_gives_way_to_a_condition_of_its_function(
    tmp_path: Path, ran: set[int], places: list[int]
) -> None:
    file = tmp_path / "source.py"
    file.write_text(EMPTY_LOOP, "utf-8")
    assert [each.number for each in skipped_launches({str(file): ran})] == places


OF_TWO_FUNCTIONS = """
def flush(self):
    for extra in self.extras:
        dist.all_reduce(extra)

def wait(self):
    self.flush()
    for bucket in self.buckets:
        if len(bucket) > 1:
            continue
        dist.all_reduce(bucket.buffer)
"""


@pytest.mark.parametrize(
    ("rightly", "places"),
    [
        (None, [9]),  # nothing is right: the loop gives way
        ({3}, [9]),  # the loop is rightly empty
        ({9}, [3, 9]),  # the loop is filled where all is right
    ],
)
def test_an_empty_loop_gives_way_to_a_place_of_another_function(
    tmp_path: Path, rightly: set[int] | None, places: list[int]
) -> None:
    file = tmp_path / "source.py"
    file.write_text(OF_TWO_FUNCTIONS, "utf-8")
    known = rightly and {
        SourceLine(str(file), line, {3: "flush", 9: "wait"}[line]) for line in rightly
    }
    found = skipped_launches({str(file): {3, 7, 8, 9, 10}}, known)
    assert [each.number for each in found] == places


class SkipsLargeBuckets(CountsHookCalls):
    """Reduces extras, of which there are none, and no parameter of three elements."""

    extras: ClassVar[list[nn.Parameter]] = []

    @override
    def note(self, parameter: nn.Parameter) -> None:
        self.flush()
        self.counts[parameter] += 1
        if self.counts[parameter] == self.required and len(parameter.shape) < 2:
            assert parameter.grad is not None
            self.reduce(parameter.grad)

    @override
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
    run = backend.run(scenario, subject)
    first, *_ = check(scenario, run, subject.capabilities)
    places = left_out(FoundViolation(first, scenario), subject, backend)
    assert [each.line.line.function for each in places] == ["note"]
