"""Clocks contain all waits, and stay as small as the number of collectives in flight."""

from dataclasses import replace

import pytest

from syncverify.judge.ordering.clocks import Clock, Lane
from syncverify.judge.ordering.happens_before import walk
from syncverify.judge.ordering.races import judge_orderings
from syncverify.trace.records import CollectiveLaunch, MemoryUse
from tests.syncverify.judge.ordering.micro_traces import traces


class Lanes:
    """Collects the lanes that work was queued on."""

    def __init__(self) -> None:
        self.seen: dict[int, Lane] = {}

    def queued(self, index: int, lane: Lane, use: MemoryUse) -> None:
        self.seen[lane.index] = lane

    def freed(self, *_: object) -> None: ...

    def waited_on_host(self, index: int, rank: int, clock: Clock) -> None: ...


def test_lanes_beside_the_host_are_used_again() -> None:
    """Else each collective of a run would lengthen every clock."""
    one = "reduce a{0} b[0:8] default>gloo; reduce c{0} d[0:8] default>gloo;"
    program = "".join(
        one.format(step) + f"await a{step} default; await c{step} default;"
        for step in range(9)
    )
    lanes = Lanes()
    walk(traces(program), "host", lanes)
    assert len(lanes.seen) == 2


def test_several_streams_may_wait_for_one_collective() -> None:
    program = """
        w b[0:8] default; reduce c b[0:8] default>nccl; await c default; await c side;
        w b[0:4] default; w b[4:8] side
    """
    assert judge_orderings(traces(program)).races == ()
    without = program.replace("await c side;", "")
    assert len(judge_orderings(traces(without)).races) == 1


def test_each_wait_of_the_host_orders_what_it_queues_from_then_on() -> None:
    """Also on a stream that has seen an earlier one."""
    once = "w {0}[0:8] default; mark {0} default; host {0}; r {0}[0:8] side;"
    program = "".join(once.format(name) for name in "bcd")
    assert judge_orderings(traces(program)).races == ()
    for name in "bcd":
        without = program.replace(f"host {name};", "")
        assert len(judge_orderings(traces(without)).races) == 1


@pytest.mark.parametrize(
    ("operation", "root", "num_races"),
    [
        ("all_reduce", None, 0),
        ("broadcast", 0, 1),
        ("broadcast", 1, 0),
        ("scatter", 0, 1),
        ("reduce", 0, 0),
        ("reduce", 1, 1),
        ("gather", 1, 1),
        ("send", None, 1),
        ("recv", None, 0),
    ],
)
def test_a_rank_comes_after_the_ranks_that_it_receives_from(
    operation: str, root: int | None, num_races: int
) -> None:
    """The write of rank 0 is before the start of rank 1, by another collective."""
    played = traces(
        "w b[0:8] side; reduce a x[0:8] side>one; reduce c y[0:8] default>two;"
        "await c default; r b[0:8] default",
        "reduce a x[0:8] side>one; await a default; reduce c y[0:8] default>two",
    )
    other = {"send": "recv", "recv": "send"}
    changed = [
        [
            replace(
                each,
                operation=other.get(operation, operation) if rank else operation,
                root=root,
            )
            if isinstance(each, CollectiveLaunch) and each.sequence == ord("c")
            else each
            for each in trace
        ]
        for rank, trace in enumerate(played)
    ]
    found = judge_orderings(changed).races
    assert [each.rank for each in found] == [0] * num_races
