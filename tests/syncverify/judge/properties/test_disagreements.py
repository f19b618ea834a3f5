"""Reasons why ranks disagree in a collective, and traces that do not prove one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from syncverify.judge.consequences import consequences_of, may_cause, other_forms
from syncverify.judge.evidence import Disagreement
from syncverify.judge.properties.matching import collectives_match_across_ranks
from syncverify.judge.violation import CauseSign, Clues
from syncverify.trace.records import CollectiveLaunch
from tests.syncverify.judge.properties.handmade_traces import causes, judgement, launch

MATCH = "collectives_match_across_ranks"
Slots = Sequence[tuple[str, int]]


def sent(slots: Slots, numel: int, **changes: Any) -> CollectiveLaunch:
    """Return a launch of float32 gradients, of four elements each in the trace."""
    return launch("dp", (0, 1), 0, slots, numel=numel, **changes)


def found(left: CollectiveLaunch, right: CollectiveLaunch) -> list[Any]:
    traces = judgement([left], [right])
    return list(
        collectives_match_across_ranks(
            replace(traces, run=replace(traces.run, carries_data=True))
        )
    )


def test_a_bucket_that_differs_by_gradients_of_another_group_mixes_groups() -> None:
    """`few` has one element on rank 0 and none on rank 1; no axis reduces it."""
    one, _ = found(sent([("q", 0), ("few", 16)], 5), sent([("q", 0)], 4))
    assert one.cause == "groups_mixed"
    assert one.summary == (
        "ranks [0, 1] met in one collective and disagree: the bucket of q holds gradients of "
        "other groups: no axis reduces few over these ranks"
    )
    assert isinstance(one.evidence, Disagreement)


@pytest.mark.parametrize(
    ("numel", "changes"),
    [
        (7, {}),  # without few they still differ in size
        (5, {"dtype": "bfloat16"}),  # and here in dtype
        (5, {"operation": "all_gather_single", "reduce_op": ""}),
    ],
)
def test_groups_are_mixed_only_if_nothing_else_differs(
    numel: int, changes: dict[str, Any]
) -> None:
    left = sent([("q", 0), ("few", 16)], numel, **changes)
    assert causes(found(left, sent([("q", 0)], 4))) == {"collective_mismatch"}


def test_a_gradient_that_is_beside_another_one_on_one_rank_tells_of_the_division() -> (
    None
):
    both, alone = sent([("q", 0), ("p", 16)], 8), sent([("q", 0)], 4)
    for left, right, ranks in ((both, alone, (0, 1)), (alone, both, (1, 0))):
        one, _ = found(left, right)
        assert one.cause == "buckets_differ"
        assert one.summary == (
            "ranks [0, 1] met in one collective and disagree: p is in one bucket with q on "
            f"rank {ranks[0]}, and not on rank {ranks[1]}"
        )


@pytest.mark.parametrize(
    ("left", "right"),
    [
        # Rank 1 has room for p, which may be there as a copy.
        (sent([("q", 0), ("p", 16)], 8), sent([("q", 0)], 9)),
        (sent([("q", 0), ("p", 16)], 8), sent([("q", 4)], 4)),
        # Other buckets: rank 1 may have skipped one.
        (sent([("p", 0)], 8), sent([("q", 16)], 4)),
        # Two names of the same bytes.
        (sent([("q", 0), ("p", 0)], 8), sent([("q", 0)], 4)),
        # What is gathered differs by rank.
        (
            sent([("q", 0), ("p", 16)], 8, operation="all_gather_single"),
            sent([("q", 0)], 4),
        ),
    ],
)
def test_buckets_differ_only_if_a_gradient_is_elsewhere_for_sure(
    left: CollectiveLaunch, right: CollectiveLaunch
) -> None:
    assert "buckets_differ" not in causes(found(left, right))
    assert "collective_mismatch" in causes(found(left, right))


# Which violation may be the cause of which, and which are forms of one mistake.


GRADIENT = "gradient_equals_reference"
LOCAL = "unreduced_stay_local"
WAIT = "every_wait_completes"
UNBIND = "unbind_restores_parameters"


def test_consequences_of_consequences_follow() -> None:
    assert {WAIT, GRADIENT, "replicas_agree"} <= consequences_of(MATCH)
    assert MATCH not in consequences_of(GRADIENT)


def test_causes_of_one_property_are_mistakes_of_their_own() -> None:
    assert not may_cause((GRADIENT, "not_reduced"), (GRADIENT, "scaled"))
    assert may_cause((UNBIND, "hook_left"), (UNBIND, "collective_after_unbind"))
    assert not may_cause((UNBIND, "collective_after_unbind"), (UNBIND, "hook_left"))


def clues(shows: str, *explained_by: str) -> Clues:
    explaining = (frozenset({CauseSign(one)}) for one in explained_by)
    return Clues(frozenset({CauseSign(shows)}), frozenset(explaining))


def test_what_fits_no_other_property_of_order_is_explained_and_explains_nothing() -> (
    None
):
    left = ("reduce_reads_after_accumulation", "accumulated_unordered")
    touched = ("bucket_is_exclusive_while_reducing", "touched_in_flight")
    read = ("wait_orders_reads_after_reduce", "read_before_reduced")
    known = {
        left: Clues(
            frozenset({CauseSign("a"), CauseSign("b")}),
            clues("", "a", "b").explained_by,
        ),
        touched: clues("a", "a"),
        read: clues("b", "b"),
    }
    assert other_forms([left, touched, read], known) == {left: touched}


def test_an_order_does_not_scale_sums() -> None:
    read = ("wait_orders_reads_after_reduce", "read_before_reduced")
    assert may_cause(read, (GRADIENT, "stale"))
    assert not may_cause(read, (GRADIENT, "scaled"))
