"""Clocks stay as small as what is in flight."""

from micro_traces import traces

from syncverify.memory import MemoryRegion
from syncverify.ordering.clocks import Clock, Lane, Meeting, join
from syncverify.ordering.happens_before import walk
from syncverify.trace import StorageFreed


class Lanes:
    """Collects the lanes that work was queued on."""

    def __init__(self) -> None:
        self.seen: dict[int, Lane] = {}

    def queued(
        self,
        index: int,
        lane: Lane,
        reads: tuple[MemoryRegion, ...],
        writes: tuple[MemoryRegion, ...],
    ) -> None:
        self.seen[lane.index] = lane

    def freed(self, index: int, lane: Lane, event: StorageFreed) -> None: ...

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


def test_join_keeps_the_later_of_each_lane() -> None:
    clock = {0: 3, 1: 1}
    join(clock, {0: 2, 1: 5, 2: 4})
    assert clock == {0: 3, 1: 5, 2: 4}


def test_a_collective_starts_after_all_that_came_before_on_some_rank() -> None:
    meeting = Meeting(num_absent=2)
    meeting.arrive({0: 1, 1: 2})
    assert meeting.num_absent == 1
    meeting.arrive({1: 3, 2: 1})
    assert meeting.num_absent == 0
    assert meeting.starts == {0: 1, 1: 3, 2: 1}
