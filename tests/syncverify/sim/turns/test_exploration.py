"""An exploration meets each class of interleavings once; trying everything finds no other."""

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncverify.sim.turns.decisions import Decisions, SchedulePolicy, TurnPoint
from syncverify.sim.turns.exploration import Exploration
from syncverify.sim.turns.scheduler import Scheduler, Wait
from syncverify.sim.turns.turn_log import AccessKind, order_of

Operation = tuple[str, str]  # kind of access, and object
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
        """Return the observations of every rank, and whether all ranks ended."""
        _, stall = self.scheduler.run(self.play)
        return (stall is None, *map(tuple, self.seen))

    def play(self, rank: int) -> None:
        for what, resource in self.programs[rank]:
            self.seen[rank].append(getattr(self, what)(resource))

    def arrive(self, resource: str) -> None:
        self.scheduler.note_access(resource, AccessKind.ARRIVE)
        self.things[resource] = self.things.get(resource, 0) + 1

    def is_there(self, resource: str) -> bool:
        return self.things.get(resource, 0) == len(self.programs)

    def wait(self, resource: str) -> None:
        wait = Wait(resource, tuple, resource)
        self.scheduler.block_until(lambda: self.is_there(resource), wait)

    def poll(self, resource: str) -> bool:
        return self.scheduler.poll(
            "poll", Wait(resource, tuple, resource), lambda: self.is_there(resource)
        )

    def spin(self, resource: str) -> int:
        return next(n for n in itertools.count() if self.poll(resource))

    def add(self, resource: str) -> int:
        self.scheduler.offer_turn()
        access = AccessKind.WRITE if resource in self.things else AccessKind.CREATE
        self.scheduler.note_access(resource, access)
        self.things[resource] = self.things.get(resource, 0) + 1
        return self.things[resource]

    def delete(self, resource: str) -> None:
        self.scheduler.offer_turn()
        self.scheduler.note_access(resource, AccessKind.WRITE)
        self.things.pop(resource, None)

    def check(self, resource: str) -> bool:
        self.scheduler.offer_turn()
        self.scheduler.note_access(resource, AccessKind.READ)
        return resource in self.things

    def get(self, resource: str) -> int:
        wait = Wait(resource, tuple, resource)
        self.scheduler.block_until(lambda: resource in self.things, wait)
        return self.things[resource]


@dataclass
class Everything:
    """Tries every option everywhere, one run after the other."""

    path: list[list[int]]
    position: int = 0
    is_done = False
    num_answers = 2

    def choose_rank(self, point: TurnPoint) -> int:
        return point.eligible[self.choose_answer(len(point.eligible))]

    def choose_answer(self, num_options: int) -> int:
        if self.position == len(self.path):
            self.path.append([0, num_options])
        self.position += 1
        return self.path[self.position - 1][0]


def brute_force(programs: Programs) -> tuple[int, set[Any], set[Any]]:
    """Return the number of runs, their classes, and their results."""
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
    """Order turns by rank: the clocks hold the rest of their order."""
    order = order_of(decisions.turn_log, num_ranks)
    turns = sorted(
        (turn.rank, tuple(clock), tuple(turn.accesses))
        for turn, clock in zip(order.turns, order.clocks, strict=True)
    )
    return tuple(turns), outcome


def explored(programs: Programs) -> tuple[Exploration, list[Any], set[Any]]:
    """Return the finished exploration, the class of each run, and the results."""
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
IMPATIENT = (ARRIVES, *[("poll", "a")] * 4, ("add", "k"), ("wait", "a"))
# Programs; classes of interleavings; interleavings.
COUNTED = {
    "nothing is shared": (alike(num_ranks=3), 1, 6),
    "first of three": (alike(("add", "k"), num_ranks=3), 6, 90),
    "note and reader": (((("add", "k"),), (("get", "k"),)), 1, 3),
    "note and peeker": (((("add", "k"),), (("check", "k"),)), 2, 6),
    # One rank comes last and gets "yes" or "not yet". The other one came before it,
    # and asked before that or after.
    "poll, then wait": (alike(ARRIVES, ("poll", "a"), ("wait", "a")), 8, 60),
    "spin": (alike(ARRIVES, ("spin", "a")), 27, 198),
    "one spins": (((ARRIVES, ("spin", "a")), (ARRIVES,)), 6, 9),
    # Rank 1 arrives only after rank 0 gave up asking. Before that rank 0 has asked twice
    # on end, if it likes; the third time it gets to it only when rank 1 cannot turn.
    "gives up": ((IMPATIENT, (("get", "k"), ARRIVES)), 1, 4),
}


@pytest.mark.long
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


@pytest.mark.long
@settings(max_examples=25)
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
    played, replayed = [], []
    for decisions in Exploration(2).runs():
        outcome = Machine(subject, decisions).run()
        played.append((decisions.schedule, decisions.turn_log, outcome))
        again = Decisions(SchedulePolicy(decisions.schedule))
        outcome = Machine(subject, again).run()
        replayed.append((again.schedule, again.turn_log, outcome))
    assert replayed == played
    assert len({schedule for schedule, *_ in played}) == len(played) == 16
