"""Parameters that may meet at one place of a buffer, and the findings of each rank.

`few` has one element, on rank 0; `elsewhere` is no parameter that either rank has.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from syncverify.judge.evidence import Event
from syncverify.judge.properties.matching import collectives_match_across_ranks
from tests.syncverify.judge.properties.handmade_traces import causes, judgement, launch

Slots = Sequence[tuple[str, int]]


def found(left: Slots, right: Slots) -> list[Any]:
    one, other = (launch("dp", (0, 1), 0, slots) for slots in (left, right))
    return list(collectives_match_across_ranks(judgement([one], [other])))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([("few", 0)], [("p", 0)]),  # rank 0 has p as well, and put few in its place
        ([("elsewhere", 0)], [("few", 0)]),  # rank 0 has few, of one element
        ([("p", 15)], [("q", 0)]),
        ([("p", 0)], [("q", 15)]),
        ([("p", 0), ("q", 16)], [("p", 4), ("q", 20)]),
    ],
)
def test_what_a_rank_has_and_did_not_put_there_is_found(
    left: Slots, right: Slots
) -> None:
    assert causes(found(left, right)) == {"bucket_mismatch"}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([("few", 0)], [("elsewhere", 0)]),  # rank 1 has no bytes of few
        ([("q", 16)], [("p", 0)]),  # they end where the other begins
        ([("p", 0)], [("q", 16)]),
    ],
)
def test_what_a_rank_cannot_know_better_is_let_pass(left: Slots, right: Slots) -> None:
    assert found(left, right) == []


def test_an_absence_names_the_collective_of_a_peer_and_its_moment() -> None:
    one, other = (launch("dp", (0, 1), n) for n in range(2))
    (finding,) = collectives_match_across_ranks(judgement([one], [one, other]))
    assert (finding.rank, finding.parameter) == (0, None)
    assert finding.evidence.events == (
        Event(f"rank 1: {other}, in step 0, wait", other),
    )


def test_a_rank_is_absent_from_communicators_of_its_own_only() -> None:
    alone, both = launch("tp", (1,), 0), launch("dp", (0, 1), 0)
    assert list(collectives_match_across_ranks(judgement([both], [both, alone]))) == []


def test_each_communicator_tells_its_first_disagreement() -> None:
    left, right = (
        [launch(name, (0, 1), 0, numel=n) for name in ("dp", "tp")] for n in (4, 6)
    )
    findings = list(collectives_match_across_ranks(judgement(left, right)))
    assert [(each.cause, each.rank) for each in findings] == [
        ("collective_mismatch", 0),
        ("collective_mismatch", 1),
    ] * 2
