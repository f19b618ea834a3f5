"""Exploring meets every class once, as does trying everything."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncverify.sim.decisions import Decisions, Following, TurnPoint
from syncverify.sim.exploration import Exploration
from syncverify.sim.moves import Access, order_of
from syncverify.sim.scheduler import Scheduler, Wait

Say = Callable[[str], None]
Operation = tuple[str, str]  # what is done, and to what
Programs = tuple[tuple[Operation, ...], ...]  # one per rank


class Machine:
    """Ranks that share things, without torch."""

    def __init__(self, programs: Programs, decisions: Decisions) -> None:
        self.programs = programs
        self.things: dict[str, int] = {}
        self.seen: list[list[Any]] = [[] for _ in programs]
        self.decisions = decisions
        self.scheduler = Scheduler(
            len(programs), progress=lambda: 0, decisions=decisions
        )

    def run(self) -> tuple[Any, ...]:
        """Return what every rank has seen, and whether all came to their end."""
        _, stall = self.scheduler.run(self.play)
        return (stall is None, *map(tuple, self.seen))

    def play(self, rank: int) -> None:
        for what, thing in self.programs[rank]:
            self.seen[rank].append(getattr(self, what)(thing))

    def arrive(self, thing: str) -> None:
        self.scheduler.touch(thing, Access.ARRIVE)
        self.things[thing] = self.things.get(thing, 0) + 1

    def is_there(self, thing: str) -> bool:
        return self.things.get(thing, 0) == len(self.programs)

    def wait(self, thing: str) -> None:
        wait = Wait(thing, tuple, thing)
        self.scheduler.block_until(lambda: self.is_there(thing), wait)

    def poll(self, thing: str) -> bool:
        return self.scheduler.poll(
            "poll", Wait(thing, tuple, thing), lambda: self.is_there(thing)
        )

    def spin(self, thing: str) -> int:
        return next(n for n in itertools.count() if self.poll(thing))

    def add(self, thing: str) -> int:
        self.scheduler.offer_turn()
        access = Access.WRITE if thing in self.things else Access.CREATE
        self.scheduler.touch(thing, access)
        self.things[thing] = self.things.get(thing, 0) + 1
        return self.things[thing]

    def delete(self, thing: str) -> None:
        self.scheduler.offer_turn()
        self.scheduler.touch(thing, Access.WRITE)
        self.things.pop(thing, None)

    def check(self, thing: str) -> bool:
        self.scheduler.offer_turn()
        self.scheduler.touch(thing, Access.READ)
        return thing in self.things

    def get(self, thing: str) -> int:
        wait = Wait(thing, tuple, thing)
        self.scheduler.block_until(lambda: thing in self.things, wait)
        return self.things[thing]


@dataclass
class Everything:
    """Tries every option everywhere, one run after the other."""

    path: list[list[int]]
    position: int = 0
    is_done = False

    def choose_rank(self, point: TurnPoint) -> int:
        return point.impatient[self.choose_answer(len(point.impatient))]

    def choose_answer(self, num_options: int) -> int:
        if self.position == len(self.path):
            self.path.append([0, num_options])
        self.position += 1
        return self.path[self.position - 1][0]


def brute_force(programs: Programs) -> tuple[int, set[Any], set[Any]]:
    """Return the number of runs, their classes, and what they led to."""
    path: list[list[int]] = []
    count, classes, outcomes = 0, set(), set()
    while True:
        decisions = Decisions(Everything(path))
        outcome = Machine(programs, decisions).run()
        count += 1
        outcomes.add(outcome)
        classes.add(class_of(decisions, len(programs), outcome))
        while path and path[-1][0] + 1 == path[-1][1]:
            path.pop()
        if not path:
            return count, classes, outcomes
        path[-1][0] += 1


def class_of(decisions: Decisions, num_ranks: int, outcome: Any) -> Any:
    """Order moves by rank: what is left of their order is in the clocks."""
    order = order_of(decisions.moves, num_ranks)
    moves = sorted(
        (move.rank, tuple(clock), tuple(move.touches))
        for move, clock in zip(order.moves, order.clocks, strict=True)
    )
    return tuple(moves), outcome


def explored(programs: Programs) -> tuple[Exploration, list[Any], set[Any]]:
    """Return the finished exploration, the class of each run, and what they led to."""
    exploration = Exploration(len(programs))
    classes: list[Any] = []
    outcomes = set()
    for decisions in exploration.runs():
        outcome = Machine(programs, decisions).run()
        outcomes.add(outcome)
        classes.append(class_of(decisions, len(programs), outcome))
    return exploration, classes, outcomes


def alike(*program: Operation, num_ranks: int = 2) -> Programs:
    return (program,) * num_ranks


ARRIVES: Operation = ("arrive", "a")
SYNCHRONIZED = (ARRIVES, ("arrive", "b"), ("wait", "a"), ("wait", "b"))
IMPATIENT = (ARRIVES, *[("poll", "a")] * 4, ("add", "k"), ("wait", "a"))
# Programs; classes of interleavings; interleavings.
COUNTED = {
    "nothing is shared": (alike(num_ranks=3), 1, 6),
    "two waits each": (alike(*SYNCHRONIZED), 1, 12),
    "first come": (alike(("add", "k")), 2, 6),
    "first of three": (alike(("add", "k"), num_ranks=3), 6, 90),
    "own keys": (((("add", "k"),), (("add", "l"),)), 1, 6),
    "note and reader": (((("add", "k"),), (("get", "k"),)), 1, 3),
    "note and peeker": (((("add", "k"),), (("check", "k"),)), 2, 6),
    # One rank comes last and is told "yes" or "not yet". The other one came before it,
    # and asked before that or after.
    "poll once": (alike(ARRIVES, ("poll", "a")), 8, 20),
    "poll, then wait": (alike(ARRIVES, ("poll", "a"), ("wait", "a")), 8, 60),
    "spin": (alike(ARRIVES, ("spin", "a")), 27, 198),
    "one spins": (((ARRIVES, ("spin", "a")), (ARRIVES,)), 6, 9),
    # Rank 1 arrives only after rank 0 gave up asking. Before that rank 0 has asked twice
    # on end, if it likes; the third time it gets to it only when rank 1 cannot move.
    "gives up": ((IMPATIENT, (("get", "k"), ARRIVES)), 1, 4),
}


@pytest.mark.parametrize(
    ("programs", "num_classes", "num_interleavings"), COUNTED.values(), ids=COUNTED
)
def test_every_class_is_met_once_and_every_interleaving_counted(
    programs: Programs, num_classes: int, num_interleavings: int
) -> None:
    count, classes, outcomes = brute_force(programs)
    assert (len(classes), count) == (num_classes, num_interleavings)
    exploration, met, led_to = explored(programs)
    assert led_to == outcomes
    assert exploration.is_complete
    assert set(met) == classes
    assert exploration.num_classes == num_classes
    assert exploration.num_interleavings == num_interleavings
    assert exploration.num_runs == len(met)


collectives = st.tuples(
    st.sampled_from(["arrive", "wait", "poll"]), st.sampled_from("ab")
)
keys = st.tuples(
    st.sampled_from(["add", "check", "get", "delete"]), st.sampled_from("kl")
)


def arriving_once(drawn: list[Operation]) -> tuple[Operation, ...]:
    return tuple(
        operation
        for place, operation in enumerate(drawn)
        if operation[0] != "arrive" or operation not in drawn[:place]
    )


def programs(num_ranks: int, length: int) -> st.SearchStrategy[Programs]:
    program = st.lists(collectives | keys, max_size=length).map(arriving_once)
    return st.tuples(*[program] * num_ranks)


@settings(max_examples=40)
@given(programs(2, 3) | programs(3, 2))
def test_exploring_meets_what_trying_everything_meets(drawn: Programs) -> None:
    count, classes, outcomes = brute_force(drawn)
    exploration, met, led_to = explored(drawn)
    assert led_to == outcomes
    assert set(met) == classes
    assert exploration.num_classes == len(classes)
    assert exploration.num_interleavings == count


def test_every_run_replays_from_its_schedule() -> None:
    subject = alike(ARRIVES, ("poll", "a"), ("add", "k"))
    schedules = set()
    for decisions in Exploration(2).runs():
        outcome = Machine(subject, decisions).run()
        schedules.add(decisions.schedule)
        again = Decisions(Following(decisions.schedule))
        assert Machine(subject, again).run() == outcome
        assert again.schedule == decisions.schedule
        assert again.moves == decisions.moves
    assert len(schedules) > 8
