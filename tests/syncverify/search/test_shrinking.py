"""After Hypothesis, shrinking leaves out one thing after the other."""

from typing import Any

import pytest

import syncverify.search.shrinking
from syncverify.backends.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.drawing import Drawing
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Judge
from syncverify.search.result import SilentProgress
from syncverify.search.schedules import ScheduleChoice
from syncverify.search.shrinking import shrink
from syncverify.subjects.subject import resolve
from tests.syncverify.search.search_subjects import Naive

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
    return shrink(drawing, judge, identity, judged.violations[identity], listening)


@pytest.mark.slow
def test_things_that_are_not_needed_are_left_out() -> None:
    listening = Listening()
    least = shrunk(listening)
    assert least.scenario.mesh == MeshSpec((2,), ("dp",))
    assert len(least.scenario.parameters) == 1
    assert least.scenario.accumulations == (1,)
    assert least.violation.identity == ("gradient_equals_reference", "not_reduced")
    assert listening.runs == list(range(1, len(listening.runs) + 1))


@pytest.mark.slow
def test_shrinking_ends_where_its_runs_are_spent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Things that were left out by then stay out."""
    monkeypatch.setattr(syncverify.search.shrinking, "_MAX_SIMPLER_RUNS", 3)
    listening = Listening()
    least = shrunk(listening)
    assert least.scenario.mesh.shape == (2, 2)
    assert least.scenario.num_steps == LARGE.num_steps
    assert len(listening.runs) == 1 + 3
