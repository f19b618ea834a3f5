"""Which orders `launch_order_agrees` holds to be compatible."""

from collections.abc import Sequence
from typing import Any

from syncverify.judge.properties.launch_order import launch_order_agrees
from syncverify.trace.records import CollectiveLaunch
from tests.syncverify.judge.properties.handmade_traces import judgement, launch

PAIR = (0, 1)
A0, A1 = (launch("a", PAIR, n) for n in range(2))
B0, B1 = (launch("b", PAIR, n) for n in range(2))


def found(*launches: Sequence[CollectiveLaunch]) -> list[Any]:
    return list(launch_order_agrees(judgement(*launches)))


def test_opposite_orders_are_a_hazard_with_the_lines_of_both_ranks() -> None:
    one, other = found([A0, B0], [B0, A0])
    assert (one.cause, one.rank, other.rank) == ("deadlock_hazard", 0, 1)
    assert one.summary == (
        "ranks [0, 1] launch collectives in orders that exclude each other: a deadlock "
        "hazard on NCCL"
    )
    assert sorted(each.words for each in one.evidence.events) == [
        f"rank 0: group a: {A0}; then group b: {B0}",
        f"rank 1: group b: {B0}; then group a: {A0}",
    ]


def test_orders_agree_until_they_do_not() -> None:
    assert found([A0, B0, B1, A1], [A0, B0, B1, A1]) == []
    finding, _ = found([A0, B0, B1, A1], [A0, B0, A1, B1])
    assert finding.evidence.events[0].words.startswith("rank 1: group a: all_reduce")
    assert "a.py:1" in finding.evidence.events[0].words


def test_what_ranks_do_not_share_may_come_anywhere() -> None:
    own = [launch("tp", (rank,), 0) for rank in range(2)]
    assert found([own[0], A0], [A0, own[1]]) == []
    left, right = launch("b", (0, 2), 0), launch("b", (1, 3), 0)
    assert found([A0, left], [right, A0], [left], [right]) == []


def test_circle_over_communicators_that_share_one_rank_each_is_found() -> None:
    """The axes of a 2x2 mesh: every other rank starts with the other axis."""
    rows = [launch("row", (0, 1), 0), launch("row", (2, 3), 0)]
    columns = [launch("column", (0, 2), 0), launch("column", (1, 3), 0)]
    first = [rows[0], columns[0]], [columns[1], rows[0]]
    second = [columns[0], rows[1]], [rows[1], columns[1]]
    findings = found(*first, *second)
    assert [finding.rank for finding in findings] == [0, 1, 2, 3]
    assert len(findings[0].evidence.events) == 4


def test_smallest_circle_is_reported() -> None:
    three = [
        launch(name, ranks, 0)
        for name, ranks in (("c", (0, 1)), ("d", (1, 2)), ("e", (0, 2)))
    ]
    x, y = (launch(name, (3, 4), 0) for name in "xy")
    c, d, e = three
    findings = found([c, e], [d, c], [e, d], [x, y], [y, x])
    assert [finding.rank for finding in findings] == [3, 4]


def test_communicator_whose_ranks_are_out_of_step_is_left_to_another_property() -> None:
    """Rank 1 skipped the first of two launches: its only one meets another collective."""
    assert found([A0, B0, A1], [B0, A0]) == []


def messages(
    rank: int, *operations: str, batch: bool | None = False
) -> list[CollectiveLaunch]:
    """Return messages between ranks 0 and 1, as one of them issues them."""
    ways = {"send": (rank, 1 - rank), "recv": (1 - rank, rank)}
    return [
        launch(
            "m",
            ways[name],
            operations[:n].count(name),
            operation=name,
            is_batched=batch,
        )
        for n, name in enumerate(operations)
    ]


def test_two_ranks_that_both_send_first_wait_for_each_other() -> None:
    orders = [messages(rank, "send", "recv") for rank in range(2)]
    one, other = found(*orders)
    assert (one.cause, one.rank, other.rank) == ("opposing_messages", 0, 1)
    assert one.summary == (
        "ranks [0, 1] exchange messages one by one in orders that exclude each other: a "
        "deadlock hazard on NCCL"
    )
    assert sorted(each.words for each in one.evidence.events) == [
        f"rank 0: {orders[0][0]}; then {orders[1][0]}",
        f"rank 1: {orders[1][0]}; then {orders[0][0]}",
    ]


def test_messages_that_cannot_wait_for_each_other_are_fine() -> None:
    assert found(messages(0, "send", "recv"), messages(1, "recv", "send")) == []
    twice = ["send", "send", "recv"]
    assert found(messages(0, *twice), messages(1, "recv", "recv", "send")) == []
    assert found(messages(0, *twice), messages(1, "recv", "send", "recv")) != []
    for batch in (None, True):
        ranks = [messages(rank, "send", "recv", batch=batch) for rank in range(2)]
        assert found(*ranks) == []
    assert found(messages(0, "send"), messages(1)) == []  # another property reports it


def test_messages_stand_in_no_order_with_collectives() -> None:
    there, back = (
        launch("m", ranks, 0, operation=operation)
        for ranks, operation in ((PAIR, "send"), ((1, 0), "recv"))
    )
    assert found([there, A0, back], [back, A0, there]) == []
