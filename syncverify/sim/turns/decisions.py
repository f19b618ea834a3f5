"""The decisions of a run that timing takes on a real machine; here a policy takes them.

A policy follows a schedule, explores all schedules, or draws one.

Note [Not yet]
    A host asks whether a resource is done. "Not yet" is a legal answer even if the resource is
    done, because the news may be on its way. But the news arrives: after `MAX_NUM_REFUSALS`
    answers "not yet" in a row to one rank about one resource, the answer is the truth.

    A policy that does not try all answers may choose a delay:

    | delay | answers "not yet" | turns | shows |
    |---|---|---|---|
    | long | `NUM_LONG_REFUSALS` | other ranks run between the questions | a host that gives up soon |
    | very long | `NUM_VERY_LONG_REFUSALS`, once in a run | other ranks wait | a host that gives up late |

    A host may also ask for ever about a resource that is *not* done. A schedule is a finite
    list, and ranks take turns after its end, so other ranks get to complete the resource.
    An exploration has no such end. There a rank that was refused `MAX_NUM_REFUSALS` times is
    parked: it cannot take a turn until the resource is done, unless no other rank can run.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from syncverify.scenario.schedule import DEFAULT_SCHEDULE, Decision, Schedule
from syncverify.sim.turns.turn_log import AccessKind, SharedAccess, Turn

MAX_NUM_REFUSALS = 2
# Hosts that give up count to 10, to 100 or to 1,000.
NUM_LONG_REFUSALS = 40
NUM_VERY_LONG_REFUSALS = 1_100
# A very long delay passes 110 s on the clocks of the rank: some hosts give up after a minute.
SECONDS_BETWEEN_POLLS = 0.1


class PollAnswer(IntEnum):
    """An answer to a host that asks whether a resource is done, where the resource is done.

    The value is the number of the option in a schedule, so tokens depend on it.
    """

    DONE = 0
    NOT_YET = 1
    LONG_DELAY = 2
    VERY_LONG_DELAY = 3


@dataclass(frozen=True, slots=True)
class TurnPoint:
    """A point at which one of several ranks takes the next turn."""

    options: tuple[int, ...]  # ranks that can run, the default one first
    eligible: tuple[int, ...]  # those that are not parked, or all: see Note [Not yet]


class Policy(Protocol):
    """A policy that decides in place of timing."""

    num_answers: int  # the policy chooses among the first members of `PollAnswer`

    @property
    def is_done(self) -> bool:
        """Tell whether every decision from here on is option 0."""

    def choose_rank(self, point: TurnPoint) -> int:
        """Return the rank that takes the next turn; called for single options, too."""

    def choose_answer(self, num_options: int) -> int:
        """Return the number of an option, for a decision that is not about ranks."""


class SchedulePolicy:
    """Follows a schedule.

    A number that is too large for its decision wraps around, so every list of numbers is a
    schedule of every program.
    """

    num_answers = len(PollAnswer)

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self._choices = schedule.choices
        self._position = 0

    @property
    def is_done(self) -> bool:
        """Tell whether the schedule has ended."""
        return self._position == len(self._choices)

    def choose_rank(self, point: TurnPoint) -> int:
        """Return the rank that takes the next turn."""
        return point.options[self.choose_answer(len(point.options))]

    def choose_answer(self, num_options: int) -> int:
        """Return the next choice; a decision with one option uses up no number."""
        if num_options == 1 or self.is_done:
            return 0
        self._position += 1
        return self._choices[self._position - 1] % num_options


class Decisions:
    """The decisions of one run: made by a policy, and recorded."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy or SchedulePolicy(DEFAULT_SCHEDULE)
        # Keys: rank and resource. Values: answers "not yet" in a row.
        self._refusals: Counter[tuple[int, str]] = Counter()
        # Keys: rank and resource. Values: answers that a long delay has left.
        self._delays: Counter[tuple[int, str]] = Counter()
        # Keys: rank and resource. Values: answers that a very long delay has left.
        self._very_long_delays: Counter[tuple[int, str]] = Counter()
        # Keys: ranks that ask. Values: the resource, and whether it is done.
        self._asking: dict[int, tuple[str, Callable[[], bool]]] = {}
        self.turn_log: list[Turn] = []
        # Those with several options, in order, while the policy was not done.
        self.taken: list[Decision] = []
        self.met_question = False  # a host asked a question that timing decides

    @property
    def schedule(self) -> Schedule:
        """Return the schedule that replays this run."""
        return Schedule.of(self.taken)

    @property
    def planned(self) -> Schedule:
        """Return the schedule to follow; the default one where the policy follows none."""
        policy = self._policy
        return (
            policy.schedule if isinstance(policy, SchedulePolicy) else DEFAULT_SCHEDULE
        )

    @property
    def is_open(self) -> bool:
        """Tell whether an option but 0 may still be chosen."""
        return not self._policy.is_done

    def next_rank(self, options: Sequence[int]) -> int:
        """Return the rank of the next turn, and begin that turn in the log.

        The default one is first among the options. One is enough once no decision is open.
        """
        chosen = options[0]
        if self.is_open:
            point = TurnPoint(tuple(options), self._eligible(options))
            chosen = self._policy.choose_rank(point)
            index = options.index(chosen)
            self._record("rank", len(options), index, f"rank {chosen} moves next")
        self.turn_log.append(Turn(chosen))
        return chosen

    @property
    def was_very_long(self) -> bool:
        """Tell whether a host met a very long delay."""
        return bool(self._very_long_delays)

    def note_access(self, resource: str, access: AccessKind) -> None:
        """Note that the current turn accesses a shared resource."""
        self.turn_log[-1].accesses.append(SharedAccess(resource, access))

    def hides(self, rank: int, resource: str) -> bool:
        """Tell whether the answer to a rank is "not yet", as part of a very long delay."""
        if not self._very_long_delays.get((rank, resource)):
            return False
        self._very_long_delays[rank, resource] -= 1
        return True

    def ask(self, rank: int, resource: str, is_done: Callable[[], bool]) -> None:
        """Note that a rank asks whether a resource is done, before it gives its turn away."""
        self._asking[rank] = (resource, is_done)

    def answer(self, rank: int, kind: str) -> bool:
        """Return whether the resource of `ask` is done, and looks done by the policy."""
        resource, is_done = self._asking.pop(rank)
        self.met_question = True
        done = is_done()
        if done and self._delays[rank, resource]:
            self._delays[rank, resource] -= 1
            self.note_access(resource, AccessKind.READ)
            return False
        no_more_refusals = self._refusals[rank, resource] >= MAX_NUM_REFUSALS
        # Once the answer has to be the truth, "done" is no choice: like a wait, it cannot
        # come before the resource is done. Any other answer depends on the order of ranks.
        self.note_access(
            resource, AccessKind.AWAIT if no_more_refusals and done else AccessKind.READ
        )
        self.turn_log[-1].is_last_resort = no_more_refusals and not done
        answer = done and (no_more_refusals or self._looks_done(rank, resource, kind))
        self._refusals[rank, resource] = (
            0 if answer else self._refusals[rank, resource] + 1
        )
        return answer

    def _looks_done(self, rank: int, resource: str, kind: str) -> bool:
        """Choose an answer about a resource that is done; tell whether it is "done"."""
        options = _answers(rank, kind)
        # A very long delay takes long, and one in a run is enough.
        num_known = (
            PollAnswer.VERY_LONG_DELAY if self._very_long_delays else len(PollAnswer)
        )
        num_options = min(self._policy.num_answers, num_known)
        answer = PollAnswer(self.decide(kind, num_options, options[:num_options]))
        if answer is PollAnswer.VERY_LONG_DELAY:
            self._very_long_delays[rank, resource] = NUM_VERY_LONG_REFUSALS
        elif answer is PollAnswer.LONG_DELAY:
            self._delays[rank, resource] = NUM_LONG_REFUSALS
        if answer in {PollAnswer.LONG_DELAY, PollAnswer.VERY_LONG_DELAY}:
            self._refusals[rank, resource] = MAX_NUM_REFUSALS
        return answer is PollAnswer.DONE

    def decide(self, kind: str, num_options: int, meanings: Sequence[str] = ()) -> int:
        """Return the number of the option that the policy chooses; 0 is the default."""
        self.met_question = self.met_question or num_options > 1
        if not self.is_open or num_options == 1:
            return 0
        chosen = self._policy.choose_answer(num_options)
        meaning = meanings[chosen] if meanings else f"option {chosen} of {kind}"
        self._record(kind, num_options, chosen, meaning)
        return chosen

    def _record(self, kind: str, num_options: int, chosen: int, meaning: str) -> None:
        if num_options > 1:
            self.taken.append(Decision(kind, num_options, chosen, meaning))

    def _eligible(self, options: Sequence[int]) -> tuple[int, ...]:
        return tuple(rank for rank in options if not self._is_parked(rank)) or tuple(
            options
        )

    def _is_parked(self, rank: int) -> bool:
        if rank not in self._asking:
            return False
        resource, is_done = self._asking[rank]
        return self._refusals[rank, resource] >= MAX_NUM_REFUSALS and not is_done()


def _answers(rank: int, question: str) -> tuple[str, ...]:
    """Return each member of `PollAnswer` in words, in order."""
    start = f"{question}() tells rank {rank}"
    return (
        f"{start} that it is done",
        f"{start} that it is not done yet",
        f"{start} {NUM_LONG_REFUSALS + 1} times that it is not done yet",
        f"{start} very often that it is not done yet",
    )
