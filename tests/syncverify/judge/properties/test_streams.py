"""The caller's stream, and whether reductions overlap with backward."""

import dataclasses

import pytest

from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.properties.streams import (
    overlap_is_possible,
    stream_context_is_restored,
)
from syncverify.judge.reference import reference
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.trace.records import SubjectReturn, TraceRecord
from syncverify.trace.run import RankRun, Run
from tests.syncverify.judge.ordering.micro_traces import traces

PROMISES = Capabilities(overlaps_backward=True)
BACKWARD, WAIT = "call backward {0} 0;", "return; call wait {0};"
FIRST, SECOND = "w a[0:4] default;", "w b[0:4] default;"
LAUNCH_A, LAUNCH_B = "reduce a{0} a[0:4] side>nccl;", "reduce b{0} b[0:4] side>nccl;"


def judgement(
    *ranks: list[TraceRecord], capabilities: Capabilities = PROMISES, num_steps: int = 3
) -> Judgement:
    specs = tuple(ParameterSpec(name, (1,), ("R",)) for name in "ab")
    mesh = MeshSpec((len(ranks),), ("dp",))
    scenario = Scenario(mesh, specs, (1,) * num_steps, 64)
    run = Run("test", tuple(RankRun(trace=events) for events in ranks))
    return Judgement(scenario, run, reference(scenario, capabilities))


def steps(*programs: str) -> list[list[TraceRecord]]:
    """Return a run of two ranks that play the same steps."""
    played = "".join(text.format(step) for step, text in enumerate(programs))
    return traces(played, played)


EARLY = BACKWARD + FIRST + LAUNCH_A + SECOND + LAUNCH_B + WAIT
LATE = BACKWARD + FIRST + SECOND + WAIT + LAUNCH_A + LAUNCH_B
AT_THE_END = BACKWARD + FIRST + SECOND + LAUNCH_A + LAUNCH_B + WAIT
LAST_FIRST = BACKWARD + SECOND + FIRST + WAIT + LAUNCH_A + LAUNCH_B
ONE_BUCKET = BACKWARD + FIRST + WAIT + LAUNCH_A
NO_ACCESSES = BACKWARD + WAIT + LAUNCH_A + LAUNCH_B
COPIED_LATE = BACKWARD + WAIT + FIRST + LAUNCH_A + SECOND + LAUNCH_B


@pytest.mark.parametrize("late", [LATE, AT_THE_END], ids=["wait", "end of backward"])
def test_launches_that_all_wait_for_the_end_are_found(late: str) -> None:
    (found, *_) = overlap_is_possible(judgement(*steps(late, late, late)))
    assert found.cause == "never_overlapped"
    assert found.parameter == "a"
    assert found.summary.startswith(
        "rank 0: expected a reduction to start during backward, but none did in 4 "
        "possible steps; for example all_reduce SUM of 1 x float32"
    )


@pytest.mark.parametrize(
    "played",
    [
        (EARLY, EARLY, EARLY),
        (LATE, LATE, EARLY),
        (LATE, ONE_BUCKET, ONE_BUCKET),
        (LATE, LAST_FIRST, LAST_FIRST),
        (NO_ACCESSES, NO_ACCESSES, NO_ACCESSES),
        (COPIED_LATE, COPIED_LATE, COPIED_LATE),
        (LATE,),
    ],
    ids=[
        "always early", "once early", "one bucket", "first bucket comes last",
        "no accesses", "copied when launched", "only the first step, in which it learns",
    ],
)  # fmt: skip
def test_what_could_not_or_did_overlap_is_silent(played: tuple[str, ...]) -> None:
    judged = judgement(*steps(*played), num_steps=len(played))
    assert list(overlap_is_possible(judged)) == []


@pytest.mark.parametrize(
    "backward", ["hook_reads_grad", "hook_writes_grad", "hooks_of_others"]
)
def test_a_subject_may_let_later_hooks_of_the_user_finish(backward: str) -> None:
    judged = judgement(*steps(LATE, LATE, LATE))
    scenario = dataclasses.replace(judged.scenario, backward=backward)
    assert (
        list(overlap_is_possible(dataclasses.replace(judged, scenario=scenario))) == []
    )


def test_a_stream_context_that_is_left_open_is_found() -> None:
    ranks = steps(EARLY + "return;", LATE + "return;")
    judged = judgement(*ranks)
    assert list(stream_context_is_restored(judged)) == []
    ranks[1] = [
        dataclasses.replace(event, stream="side")
        if isinstance(event, SubjectReturn) and event.moment.phase == "wait"
        else event
        for event in ranks[1]
    ]
    (found, again) = stream_context_is_restored(judgement(*ranks))
    assert (
        (found.rank, found.cause) == (again.rank, again.cause) == (1, "stream_changed")
    )
    assert found.summary == (
        "rank 1: expected stream 'default' to be current again after wait() of step 0, but "
        "'side' is"
    )
