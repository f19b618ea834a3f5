"""Traces that violate `collectives_match_across_ranks`, and traces that pass."""

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from syncverify.judge.evidence import Event, ended
from syncverify.judge.properties.matching import collectives_match_across_ranks
from syncverify.judge.reference import reference
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.specs import ParameterSpec
from syncverify.trace.records import CollectiveLaunch, GroupMade, Moment, TraceRecord
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.run import Fault
from syncverify.trace.source_lines import SourceLine
from tests.syncverify.judge.properties.handmade_traces import (
    PARAMETERS,
    causes,
    judgement,
    launch,
)

PAIR = (0, 1)


def found(*events: Sequence[TraceRecord], fault: Fault | None = None) -> list[Any]:
    return list(collectives_match_across_ranks(judgement(*events, fault=fault)))


def first(slots: Sequence[tuple[str, int]] = (), **changes: Any) -> CollectiveLaunch:
    return launch("dp", PAIR, 0, slots, **changes)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"reduce_op": "SUM"}, {"reduce_op": "AVG"}),
        ({"dtype": "float32"}, {"dtype": "bfloat16"}),
        ({"numel": 4}, {"numel": 6}),
        ({"operation": "reduce", "root": 0}, {"operation": "reduce", "root": 1}),
        ({"operation": "all_reduce"}, {"operation": "reduce_scatter"}),
    ],
)
def test_ranks_that_meet_must_agree(left: Any, right: Any) -> None:
    one, other = found([first(**left)], [first(**right)])
    assert (one.cause, one.rank, other.rank) == ("collective_mismatch", 0, 1)
    assert one.summary == "ranks [0, 1] met in one collective and disagree"
    assert [each.words for each in one.evidence.events] == [
        f"rank 0: {first(**left)}",
        f"rank 1: {first(**right)}",
    ]
    assert found([first(**left)], [first(**left)]) == []


def of_copies(
    *values: tuple[float, ...],
    carries_data: bool = True,
    more: tuple[ParameterSpec, ...] = (),
) -> list[Any]:
    """Let each rank send some values, from a separate buffer."""
    launches = [
        first(
            numel=len(own),
            regions=(MemoryRegion(0, 0, 4 * len(own)),),
            contents=(struct.pack(f"{len(own)}f", *own),),
        )
        for own in values
    ]
    traces = judgement(*([one] for one in launches))
    scenario = replace(traces.scenario, parameters=PARAMETERS + more)
    played = replace(
        traces,
        scenario=scenario,
        run=replace(traces.run, carries_data=carries_data),
        reference=reference(scenario, Capabilities()),
    )
    return list(collectives_match_across_ranks(played))


def own_part(name: str, rank: int) -> tuple[float, ...]:
    oracle = judgement([], []).reference
    (spec,) = (spec for spec in PARAMETERS if spec.name == name)
    return tuple(oracle.local(spec, rank, 0, [0]).tolist())


def test_parts_that_no_axis_reduces_must_not_meet() -> None:
    """The group was left out, and so it is the default one."""
    findings = of_copies(own_part("few", 0), own_part("few", 1))
    assert causes(findings) == {"foreign_contribution"}
    assert findings[0].summary == (
        "ranks [0, 1] met in one collective and disagree: no axis reduces few over these "
        "ranks; the gradient of few on rank 0 stays its own"
    )


def test_values_tell_nothing_where_collectives_move_none() -> None:
    parts = own_part("few", 0), own_part("few", 1)
    assert causes(of_copies(*parts, carries_data=False)) == {"collective_mismatch"}


@pytest.mark.parametrize(
    "sent", [own_part("q", 0), (*own_part("few", 0), *own_part("q", 0)), (0.5,)]
)
def test_what_may_meet_or_is_unknown_is_a_mismatch(sent: tuple[float, ...]) -> None:
    findings = of_copies(sent, ())
    assert causes(findings) == {"collective_mismatch"}


def test_what_follows_a_disagreement_on_the_same_communicator_is_not_reported() -> None:
    left = [first(numel=4), launch("dp", PAIR, 1, numel=6)]
    right = [first(numel=6), launch("dp", PAIR, 1, numel=4)]
    assert len(found(left, right)) == 2  # one for each rank


def test_parts_may_be_uneven_where_the_operation_allows_it() -> None:
    for operation in ("all_gather", "all_to_all", "all_to_all_single", "scatter"):
        one, other = (first(operation=operation, numel=n) for n in (2, 6))
        assert found([one], [other]) == []


def test_buckets_of_equal_size_that_are_swapped_are_found() -> None:
    left = [first([("p", 0)]), launch("dp", PAIR, 1, [("q", 0)])]
    right = [first([("q", 0)]), launch("dp", PAIR, 1, [("p", 0)])]
    findings = found(left, right)
    assert causes(findings) == {"bucket_mismatch"}
    assert [(each.rank, each.parameter) for each in findings[:2]] == [
        (0, "p"),
        (1, "q"),
    ]
    assert findings[0].summary == (
        "ranks [0, 1] met in one collective and disagree: p at byte 0 on rank 0 meets q "
        "at byte 0 on rank 1 (step 0, wait)"
    )


def test_parameters_that_are_swapped_within_a_bucket_are_found() -> None:
    one, other = first([("p", 0), ("q", 16)]), first([("q", 0), ("p", 16)])
    assert causes(found([one], [other])) == {"bucket_mismatch"}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([("p", 0)], []),  # copied elsewhere first, on one rank
        ([("p", 0), ("few", 16)], [("p", 0)]),  # no bytes of its shard
        ([("embedding", 0)], [("head", 0)]),  # tied weights of two pipeline stages
        ([("p", 0), ("alias", 0)], [("p", 0)]),  # two names of one gradient
        ([("p", 0), ("p", 32)], [("p", 32), ("p", 0)]),  # one gradient, twice
        ([("p", -8)], [("p", -8)]),  # the second half of a gradient
        ([("p", 0)], [("q", 16)]),  # each copied elsewhere first, on the other rank
        ([("few", 0)], [("elsewhere", 0)]),  # rank 1 has no bytes of few
        ([("q", 16)], [("p", 0)]),  # they end where the other begins
    ],
)
def test_rank_may_know_no_name_or_another_one(left: Any, right: Any) -> None:
    assert met(left, right) == []


def test_what_is_gathered_differs_by_rank() -> None:
    one, other = (
        first([(name, 0)], operation="all_gather_single", reduce_op="") for name in "pq"
    )
    assert found([one], [other]) == []


def test_rank_that_issues_too_little_is_found_where_nobody_waits() -> None:
    """On ranks without data, which never wait for each other."""
    launches = [first([("p", 0)]), launch("dp", PAIR, 1, [("q", 0)])]
    (finding,) = found(launches, launches[:1])
    assert (finding.cause, finding.rank) == ("collective_missing", 1)
    assert (
        finding.summary == f"rank 1 never issues a collective of rank 0: {launches[1]}"
    )
    stalled = Fault("deadlock", (1,), "no rank can go on")
    assert found(launches, launches[:1], fault=stalled) == []
    assert found(launches, []) == []  # a rank that was not played


def test_each_missing_collective_says_where_ranks_last_met_on_its_group() -> None:
    dp, tp = ([launch(name, PAIR, n) for n in range(2)] for name in ("dp", "tp"))
    findings = found([*dp, *tp], [dp[0], tp[0]])
    assert [each.cause for each in findings] == ["collective_missing"] * 2
    assert [each.evidence.parting.last for each in findings] == [dp[0], tp[0]]


def test_ranks_that_make_fewer_groups_or_others_are_named() -> None:
    made = GroupMade(
        Moment("bind", 0), "default", PAIR, SourceLine("a.py", 7, "groups")
    )
    for rank, rows in enumerate([[[], [made]], [[made], []]]):
        (finding,) = found(*rows)
        assert (finding.cause, finding.rank) == ("groups_differ", rank)
        assert finding.summary.startswith(f"rank {rank} makes fewer groups than rank")
    assert causes(found([made], [replace(made, ranks=(0,))])) == {"groups_differ"}


def test_messages_are_matched_by_sender_and_receiver() -> None:
    sent, received = (
        first(operation=operation, reduce_op="") for operation in ("send", "recv")
    )
    assert found([sent], [received]) == []
    assert causes(found([sent], [first(operation="recv", reduce_op="", numel=2)])) == {
        "collective_mismatch"
    }


def test_mismatch_that_only_the_backend_saw_is_reported() -> None:
    seen = Fault(
        "collective_mismatch", (0, 1), "they disagree", ("rank 0: a", "rank 1: b")
    )
    one = launch("dp", PAIR, 0, operation="all_to_all")
    findings = found([one], [one], fault=seen)
    assert [(each.rank, each.summary) for each in findings] == [
        (0, "they disagree"),
        (1, "they disagree"),
    ]
    assert findings[0].evidence == ended(seen)


Slots = Sequence[tuple[str, int]]


def met(left: Slots, right: Slots) -> list[Any]:
    """Judge a collective in which two ranks send from these places of a buffer.

    `few` has one element, on rank 0; `elsewhere` is no parameter that either rank has.
    """
    return found([first(left)], [first(right)])


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
    assert causes(met(left, right)) == {"bucket_mismatch"}


def test_an_absence_names_the_collective_of_a_peer_and_its_moment() -> None:
    one, other = (launch("dp", (0, 1), n) for n in range(2))
    (finding,) = found([one], [one, other])
    assert (finding.rank, finding.parameter) == (0, None)
    assert finding.evidence.events == (
        Event(f"rank 1: {other}, in step 0, wait", other),
    )


def test_a_rank_is_absent_from_communicators_of_its_own_only() -> None:
    alone, both = launch("tp", (1,), 0), launch("dp", (0, 1), 0)
    assert found([both], [both, alone]) == []
