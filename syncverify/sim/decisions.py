"""Where timing decides, and who decides in its place: a schedule, or an exploration.

Note [Patience]
    "Not yet" is a legal answer about a thing that is done: the news may be on its way.
    But it arrives. After `MAX_REFUSALS` answers "not yet" in a row, one rank is told the
    truth about one thing. And a host may ask for ever about a thing that is *not* done.
    A schedule is a finite list, after which ranks take turns, so that others get to do
    it. An exploration has no such end: to it, a rank that was refused that often cannot
    move until the thing is done, unless nobody else can move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from syncverify.schedule import DEFAULT_SCHEDULE, Decision, Schedule
from syncverify.sim.moves import Access, Move, Touch

MAX_REFUSALS = 2


@dataclass(frozen=True, slots=True)
class TurnPoint:
    """A point at which one of several ranks moves next.

    Attributes:
        options: The ranks that can move; the first one does by default.
        impatient: Those that exploring goes on with; see Note [Patience].
    """

    options: tuple[int, ...]
    impatient: tuple[int, ...]


class Policy(Protocol):
    """Decides in place of timing."""

    @property
    def is_done(self) -> bool:
        """Tell whether everything from here on is option 0."""

    def choose_rank(self, point: TurnPoint) -> int:
        """Return the rank that moves next; asked for single options, too."""

    def choose_answer(self, num_options: int) -> int:
        """Return the number of an option that is not about ranks."""


class Following:
    """Does what a schedule says.

    A number that is too large for its decision wraps around, so that every list of
    numbers is a schedule of every program.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._choices = schedule.choices
        self._position = 0

    @property
    def is_done(self) -> bool:
        """Tell whether the schedule has ended."""
        return self._position == len(self._choices)

    def choose_rank(self, point: TurnPoint) -> int:
        """Return the rank that moves next."""
        return point.options[self.choose_answer(len(point.options))]

    def choose_answer(self, num_options: int) -> int:
        """Return the next choice; where there is none to make, the list stays."""
        if num_options == 1 or self.is_done:
            return 0
        self._position += 1
        return self._choices[self._position - 1] % num_options


class Decisions:
    """The decisions of one run: made by a policy, and recorded.

    Attributes:
        moves: What ranks did between points at which the turn could change hands.
        taken: The decisions, as far as they were not all option 0 from there on.
        met_question: Whether a host asked for something that timing decides.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy or Following(DEFAULT_SCHEDULE)
        self._refusals: Counter[tuple[int, str]] = Counter()
        self._asking: dict[int, tuple[str, Callable[[], bool]]] = {}
        self.moves: list[Move] = []
        self.taken: list[Decision] = []
        self.met_question = False

    @property
    def schedule(self) -> Schedule:
        """Return what replays this run."""
        return Schedule.of(self.taken)

    @property
    def is_open(self) -> bool:
        """Tell whether anything but option 0 may still be taken."""
        return not self._policy.is_done

    def next_rank(self, options: Sequence[int]) -> int:
        """Choose which rank moves, and begin its move.

        Args:
            options: The ranks that can; one is enough where nothing is open any more.

        Returns:
            The rank.
        """
        chosen = options[0]
        if self.is_open:
            point = TurnPoint(tuple(options), self._impatient(options))
            chosen = self._policy.choose_rank(point)
            index = options.index(chosen)
            self._record("rank", len(options), index, f"rank {chosen} moves next")
        self.moves.append(Move(chosen))
        return chosen

    def touch(self, thing: str, access: Access) -> None:
        """Note that the rank that moves touches a shared thing."""
        self.moves[-1].touches.append(Touch(thing, access))

    def ask(self, rank: int, thing: str, is_done: Callable[[], bool]) -> None:
        """Note that a rank is about to be told whether something is done."""
        self._asking[rank] = (thing, is_done)

    def answer(self, rank: int, kind: str) -> bool:
        """Tell a rank whether what it asks about is done.

        Args:
            rank: Whose turn it is; `ask` has said what it asks about.
            kind: Name of the decision.

        Returns:
            False where it is not done, and where timing may have it look so.
        """
        thing, is_done = self._asking.pop(rank)
        self.met_question = True
        is_patient = self._refusals[rank, thing] >= MAX_REFUSALS
        done = is_done()
        self.touch(thing, Access.AWAIT if is_patient and done else Access.READ)
        self.moves[-1].is_last_resort = is_patient and not done
        answer = done and (is_patient or self.decide(kind, 2, _told(rank, kind)) == 0)
        self._refusals[rank, thing] = 0 if answer else self._refusals[rank, thing] + 1
        return answer

    def decide(self, kind: str, num_options: int, meanings: Sequence[str] = ()) -> int:
        """Choose between options of the rank that moves.

        Args:
            kind: Name of the decision.
            num_options: How many there are; option 0 is what happens by default.
            meanings: The options in words.

        Returns:
            The number of the option.
        """
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

    def _impatient(self, options: Sequence[int]) -> tuple[int, ...]:
        return tuple(rank for rank in options if not self._is_patient(rank)) or tuple(
            options
        )

    def _is_patient(self, rank: int) -> bool:
        if rank not in self._asking:
            return False
        thing, is_done = self._asking[rank]
        return self._refusals[rank, thing] >= MAX_REFUSALS and not is_done()


def _told(rank: int, question: str) -> tuple[str, str]:
    start = f"{question}() tells rank {rank}"
    return f"{start} that it is done", f"{start} that it is not done yet"
