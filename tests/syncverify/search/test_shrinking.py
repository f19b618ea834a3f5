"""After Hypothesis, shrinking leaves out one thing after the other, and each feature that is not needed."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from syncverify.playing.sim import SimBackend
from syncverify.progress import SilentProgress
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.features import optional_features
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE, ScheduleChoice
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.drawing import Drawing
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Judge
from syncverify.search.shrinking import shrink, with_needed_features
from syncverify.subjects.bugbank.bases.placements import local_grad
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.subject import resolve
from tests.syncverify.search.search_subjects import Naive

SCENARIO = Scenario(
    MeshSpec((2,), ()),
    (
        ParameterSpec("p0", (4, 4), ("R",), use="twice", num_listed=2),
        ParameterSpec("p1", (4,), ("R",), "float64", use="checkpointed"),
    ),
    (1, 1),
    2**20,
    events=("wait_twice", "plain"),
    backward="inputs",
    readiness="by_rank",
)


class DoublesTheSecondWait(PlainGrads):
    """Is wrong where wait() is called twice for gradients in float64."""

    capabilities = replace(
        Capabilities(), features=frozenset({"use", "backward", "event", "listed"})
    )
    num_waits = 0

    def wait(self) -> None:
        self.num_waits += 1
        if self.num_waits == 1:
            super().wait()
        elif any(p.dtype == torch.float64 for p in self.parameters):
            self.scale(self.parameters)

    def scale(self, parameters: list[nn.Parameter]) -> None:
        for parameter in parameters:
            local_grad(parameter).mul_(5)

    def zero_grad(self) -> None:
        super().zero_grad()
        self.num_waits = 0


@pytest.mark.slow
def test_two_features_of_many_are_left() -> None:
    judge = Judge(
        resolve(DoublesTheSecondWait, "everything"), SimBackend(), ScheduleChoice(), 0
    )
    before = judge.judge_schedule(SCENARIO, DEFAULT_SCHEDULE)
    identity = next(
        each for each in before.violations if each[0] == "gradient_equals_reference"
    )
    found = with_needed_features(judge, before.violations[identity])
    assert len({*optional_features(SCENARIO)}) > 2
    assert {*optional_features(found.scenario)} == {
        ("event", "wait_twice"),
        ("dtype", "float64"),
    }
    assert found.violation.identity == identity


LARGE = Scenario(
    MeshSpec((3, 2), ("dp", "tp")),
    tuple(ParameterSpec(f"p{n}", (2,), ("R", "S0")) for n in range(3)),
    (3, 3),
    64,
)


class SkipsLast(Naive):
    """Forgets to reduce its last parameter."""

    def reduce(self, parameter: Any) -> None:
        if parameter is not self.parameters[-1]:
            super().reduce(parameter)


class Listening(SilentProgress):
    """Remembers the runs that it was called with."""

    def __init__(self) -> None:
        self.runs: list[int] = []

    def shrinking(self, identity: tuple[str, str], num_runs: int) -> None:
        self.runs.append(num_runs)


def shrunk(listening: Listening) -> FoundViolation:
    """Shrink where Hypothesis meets nothing: its only scenario has one rank."""
    subject = resolve(SkipsLast)
    judge = Judge(subject, SimBackend(), ScheduleChoice(), 0)
    drawing = Drawing(subject.capabilities, 1, 1, 0)
    judged = judge.judge_schedule(LARGE, DEFAULT_SCHEDULE)
    identity = ("gradient_equals_reference", "not_reduced")
    return shrink(drawing, judge, judged.violations[identity], listening)


@pytest.mark.long
def test_things_that_are_not_needed_are_left_out() -> None:
    listening = Listening()
    least = shrunk(listening)
    assert least.scenario.mesh == MeshSpec((2,), ("dp",))
    assert len(least.scenario.parameters) == 1
    assert least.scenario.accumulations == (1,)
    assert least.violation.identity == ("gradient_equals_reference", "not_reduced")
    assert listening.runs == list(range(1, len(listening.runs) + 1))
