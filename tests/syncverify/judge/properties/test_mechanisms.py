"""Each mechanism beside a trace that shows it, and one that shows too little for it."""

from dataclasses import replace

import pytest
import torch

from syncverify.judge.cause import Cause
from syncverify.judge.decoding import explain
from syncverify.judge.expected_gradient import ExpectedGradient
from syncverify.judge.properties.accumulation import (
    accumulation_is_local_until_reduced,
)
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.properties.mechanisms import mechanism
from syncverify.judge.reference import reference
from syncverify.report.hints import hint_of
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.trace.records import (
    CollectiveLaunch,
    Moment,
    SubjectReturn,
    TraceRecord,
)
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.run import Observation, RankRun, Run
from syncverify.trace.source_lines import SourceLine
from tests.syncverify.judge.properties.shown_causes import (
    ELSEWHERE,
    EXPECTED,
    FIRST_ONLY,
    IN_BUCKET,
    ORACLE,
    OWN,
    SCENARIO,
    STEP,
    TWICE_SUMMED,
    WEIGHT,
    ZEROS,
    accumulation,
    causes_of,
    copies,
    launch,
)

SHOWN = {
    "no_collective": (OWN, (), "not_reduced"),
    "collectives_of_others": (OWN, (launch(names=("other",)),), "not_reduced"),
    "memory_of_an_earlier_step": (
        OWN,
        (launch(step=0), launch(names=("other",))),
        "view_lost",
    ),
    "memory_of_a_later_step": (
        OWN,
        (launch(names=("other",)), launch(step=STEP + 1)),
        "not_reduced",
    ),
    "two_sums": (TWICE_SUMMED, (launch(), launch(None)), "reduced_twice"),
    "first_micro_batch": (FIRST_ONLY, (launch(0),), "reduced_early"),
    "accumulated_after_launch": (
        EXPECTED.value() - EXPECTED.part(0, [1]),
        (launch(), accumulation()),
        "reduced_early",
    ),
    "reduced_and_read_elsewhere": (OWN, (launch(),), "result_dropped"),
    "written_and_gone": (ZEROS, (accumulation(), launch(None)), "erased"),
}


@pytest.mark.parametrize(
    ("observed", "events", "kind"), SHOWN.values(), ids=SHOWN.keys()
)
def test_trace_names_the_call(
    observed: torch.Tensor, events: tuple[TraceRecord, ...], kind: str
) -> None:
    of_value, cause = causes_of(observed, *events)
    assert cause.kind == kind
    assert cause.text != of_value.text
    assert hint_of(kind)


SHOWS_NOTHING = {
    "launch_of_unknown": (OWN, (launch(names=(), regions=(ELSEWHERE,)),)),
    "mean_of_means": (
        TWICE_SUMMED,
        (launch(reduce_op="AVG"), launch(None, reduce_op="AVG")),
    ),
    "one_sum": (TWICE_SUMMED, (launch(),)),
    "gathered_beside": (
        TWICE_SUMMED,
        (launch(), launch(None, operation="all_gather", reduce_op="")),
    ),
    "accumulated_before_launch": (
        EXPECTED.value() - EXPECTED.part(0, [1]),
        (accumulation(), launch()),
    ),
    "neighbour_accumulated_later": (
        EXPECTED.value() - EXPECTED.part(0, [1]),
        (launch(), accumulation(memory=MemoryRegion(0, 0, 16))),
    ),
    "subject_writes_later": (
        EXPECTED.value() - EXPECTED.part(0, [1]),
        (launch(), accumulation(source=SourceLine("a.py", 9, "finish"))),
    ),
    "never_accumulated": (ZEROS, (launch(None),)),
    "launched_in_the_last_micro_batch": (FIRST_ONLY, (launch(1),)),
}


@pytest.mark.parametrize(
    ("observed", "events"), SHOWS_NOTHING.values(), ids=SHOWS_NOTHING.keys()
)
def test_what_a_trace_does_not_show_is_not_said(
    observed: torch.Tensor, events: tuple[TraceRecord, ...]
) -> None:
    of_value, cause = causes_of(observed, *events)
    assert cause == of_value


COPIES_SHOWN = {
    "copies_of_others": (OWN, (copies(ZEROS),), "not_reduced"),
    "sum_of_what_was_summed": (
        TWICE_SUMMED,
        (copies(OWN, 1), copies(EXPECTED.value())),
        "reduced_twice",
    ),
    "sum_that_was_not_seen_before": (
        TWICE_SUMMED,
        (copies(EXPECTED.value()),),
        "reduced_twice",
    ),
    "sent_from_where_it_is_zero": (ZEROS, (copies(OWN),), "erased"),
}


@pytest.mark.parametrize(
    ("observed", "events", "kind"), COPIES_SHOWN.values(), ids=COPIES_SHOWN.keys()
)
def test_copies_are_known_by_their_values(
    observed: torch.Tensor, events: tuple[TraceRecord, ...], kind: str
) -> None:
    of_value, cause = causes_of(observed, *events, shown_at=IN_BUCKET)
    assert cause.kind == kind
    assert cause.text != of_value.text


COPIES_SHOW_NOTHING = {
    "own_copy": (OWN, (copies(OWN),)),
    "unknown_copy": (OWN, (copies(OWN / 2),)),
    "mean_of_what_was_summed": (
        TWICE_SUMMED,
        (copies(EXPECTED.value(), reduce_op="AVG"),),
    ),
    "sum_of_its_own": (TWICE_SUMMED, (copies(OWN, 1), copies(OWN))),
    "sum_that_is_larger": (EXPECTED.value() * 4, (copies(EXPECTED.value()),)),
    "zeros_were_sent": (ZEROS, (copies(ZEROS),)),
    "others_were_sent": (ZEROS, (copies(OWN.flip(0)),)),
}


@pytest.mark.parametrize(
    ("observed", "events"),
    COPIES_SHOW_NOTHING.values(),
    ids=COPIES_SHOW_NOTHING.keys(),
)
def test_what_values_do_not_show_is_not_said(
    observed: torch.Tensor, events: tuple[TraceRecord, ...]
) -> None:
    of_value, cause = causes_of(observed, *events, shown_at=IN_BUCKET)
    assert cause == of_value


def test_zeros_beside_what_was_sent_are_not_erased() -> None:
    of_value, cause = causes_of(ZEROS, copies(OWN), shown_at=ELSEWHERE)
    assert cause == of_value


@pytest.mark.parametrize(
    ("seen", "where", "kind"),
    [
        (EXPECTED.part(0, [0]), IN_BUCKET, "erased"),
        (EXPECTED.part(0, [0]), ELSEWHERE, "never_written"),
        (EXPECTED.part(0, [1]), IN_BUCKET, "never_written"),
        (ZEROS, IN_BUCKET, "never_written"),
    ],
)
def test_what_was_there_between_micro_batches_is_erased(
    seen: torch.Tensor, where: MemoryRegion, kind: str
) -> None:
    returned = SubjectReturn(Moment("backward", STEP, 0), gradients={"w": where})
    earlier = Observation("accumulated", STEP, 0, {"w": seen})
    sent = copies(ZEROS)
    _, cause = causes_of(ZEROS, returned, sent, shown_at=IN_BUCKET, earlier=(earlier,))
    assert cause.kind == kind


MOVES = replace(SCENARIO, events=("plain", "move"))
BOUND = (Moment("bind", 0), IN_BUCKET)
STEP_ENDS = (Moment("zero_grad", 0), IN_BUCKET)
MOVED = (Moment("zero_grad", STEP), ELSEWHERE)
BACK, THIRD = (Moment("backward", STEP, 0), IN_BUCKET), MemoryRegion(9, 0, 16)


@pytest.mark.parametrize(
    ("scenario", "calls", "kind"),
    [
        (MOVES, (BOUND, STEP_ENDS, MOVED), "view_lost"),
        (SCENARIO, (BOUND, STEP_ENDS, MOVED), "stale"),
        (MOVES, (BOUND, STEP_ENDS, MOVED, BACK), "stale"),
        (MOVES, (BOUND, (STEP_ENDS[0], THIRD), MOVED), "stale"),
        (MOVES, ((BOUND[0], None), STEP_ENDS, MOVED), "stale"),
        (MOVES, (BOUND, STEP_ENDS, (MOVED[0], IN_BUCKET), MOVED), "stale"),
    ],
    ids=["moved", "not_by_caller", "put_back", "moved_before", "unbound", "too_late"],
)
def test_gradient_that_the_caller_moved_is_lost(
    scenario: Scenario,
    calls: tuple[tuple[Moment, MemoryRegion | None], ...],
    kind: str,
) -> None:
    oracle = reference(scenario, Capabilities())
    expected = ExpectedGradient(oracle, WEIGHT, 0, STEP, 1, (0,), 1)
    wrong = (expected.value() + oracle.reduced(WEIGHT, 0, 0)).float()
    seen = Observation("accumulated", STEP, 0, {"w": wrong})
    last = (Moment("backward", STEP, 0), calls[-1][1])
    returns = [
        SubjectReturn(at, gradients={} if own is None else {"w": own})
        for at, own in (*calls, last)
    ]
    of_value = explain(expected, wrong)
    assert of_value is not None
    assert of_value.kind == "stale"
    for launched, cause in (
        (launch(names=()), kind),
        (launch(names=(), step=0), "stale"),
        (launch(names=(), regions=(ELSEWHERE,)), "stale"),
    ):
        rank_run = RankRun([seen], [*returns[:-1], launched, returns[-1]])
        assert mechanism(expected, seen, of_value, rank_run).kind == cause


def test_own_gradient_that_the_caller_moved_is_lost() -> None:
    """No earlier launch had it: the caller moved it before the first one."""
    scenario = replace(SCENARIO, events=("move", "plain"))
    expected = ExpectedGradient(
        reference(scenario, Capabilities()), WEIGHT, 0, 0, 2, (0, 1), 1
    )
    own = expected.part(0).float()
    seen = Observation("reduced", 0, None, {"w": own})
    calls = (*BOUND[:1], Moment("zero_grad", 0), Moment("wait", 0))
    returns = [
        SubjectReturn(at, gradients={"w": lies})
        for at, lies in zip(calls, (IN_BUCKET, ELSEWHERE, ELSEWHERE), strict=True)
    ]
    events = [*returns[:2], launch(None, names=(), step=0), returns[2]]
    of_value = explain(expected, own)
    assert of_value is not None
    cause = mechanism(expected, seen, of_value, RankRun([seen], events))
    assert cause == Cause(
        "view_lost",
        "it is rank 0's own gradient: `.grad` does not lie in the memory that is reduced at "
        "a.py:7 in launch (step 0, wait), where bind() had put it, since the caller changed "
        "parameters before step 0",
        lines=(SourceLine("a.py", 7, "launch"),),
    )


def test_place_of_each_call_is_named() -> None:
    _, cause = causes_of(TWICE_SUMMED, launch(), launch(None))
    assert "a.py:7 in launch (step 1, micro-batch 1, backward)" in cause.text
    assert "a.py:7 in launch (step 1, wait)" in cause.text


def test_what_comes_later_does_not_explain_what_is_seen_between_micro_batches() -> None:
    later = RankRun(trace=[accumulation(1), launch(1)])
    seen = {"w": torch.zeros(4), "other": None}
    later.observations.append(Observation("accumulated", STEP, 0, seen))
    run = Run("sim", (later, RankRun()))
    found = accumulation_is_local_until_reduced(Judgement(SCENARIO, run, ORACLE))
    assert [finding.cause for finding in found] == ["never_written"]


@pytest.mark.parametrize(
    ("alone", "kind", "message"),
    [
        (
            launch(names=("w",)),
            "rank_contribution_missing",
            "reduced at a.py:7 in launch (step 1, micro-batch 1, ",
        ),
        (
            launch(names=("other",)),
            "not_reduced",
            "own gradient, and the step reduces over rank 0 alone, at a.py:7 in launch (step 1",
        ),
        (
            launch(names=("w",), step=0),
            "not_reduced",
            "no collective of the step sent it: none was launched",
        ),
    ],
    ids=["of_it", "of_another", "of_another_step"],
)
def test_a_reduction_over_one_rank_is_reported(
    alone: CollectiveLaunch, kind: str, message: str
) -> None:
    _, cause = causes_of(OWN, replace(alone, ranks=(0,)))
    assert cause.kind == kind
    assert message in cause.text


def test_reductions_over_one_rank_are_reported_of_zeros_too() -> None:
    alone = replace(launch(names=("other",)), ranks=(0,))
    _, cause = causes_of(ZEROS, alone, alone)
    assert cause.text.startswith(
        "it is all zeros, and each reduction of the step is over rank 0 alone, at a.py:7 in "
    )
