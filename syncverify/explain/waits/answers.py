"""The answer for each synchronization point of a subject, or of several of the same code."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from syncverify.explain.waits.exposed_time import Link
from syncverify.rendered import Rendered
from syncverify.scenario.small_scope import SmallScope
from syncverify.trace.sync_points import SyncPoint

NeedWord = Literal["needed", "superfluous", "undecided"]
NEED_WORDS: Final[tuple[NeedWord, ...]] = get_args(NeedWord)
# A subject that needs a line decides; then one that does not know whether it does.
_PRECEDENCE: Final[tuple[NeedWord, ...]] = ("needed", "undecided", "superfluous")
# Why a point is undecided.
WhyUndecided = Literal[
    "", "never ran", "schedules", "time limit", "not simulated", "process lost"
]


@dataclass(frozen=True, slots=True)
class HarmWithout:
    """A violation that shows without a point."""

    property: str
    cause: str
    token: str  # scenario that shows it
    # Whether the traces without the edge show it; a play without the call does otherwise.
    is_of_model: bool
    # The wrong gradient in words, of a play without the call; "" where none was shown.
    outcome: str = ""
    # Elements of the right and the wrong gradient, where known.
    expected: tuple[float, ...] | None = None
    observed: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The word for one point.

    `needed`: something breaks without it. `superfluous`: all scenarios within the bound hold
    without it. `undecided`: neither is known.
    """

    point: SyncPoint
    code: str
    word: NeedWord
    num_scenarios: int  # in which it ran
    harm: HarmWithout | None = None  # None if it is not needed
    # Most time by which steps of a scenario end sooner without it, a step.
    exposed_microseconds: float = 0.0
    reason: WhyUndecided = ""


@dataclass(frozen=True, slots=True)
class PlayedSubject:
    """A subject, and the number of scenarios that were played."""

    name: str
    num_in_scope: int
    num_drawn: int  # beyond those of the scope
    num_refused: int = 0  # by the subject, as its contract allows
    num_not_simulated: int = 0
    # Tokens of scenarios that break with all waits, which say nothing of any wait.
    wrong: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AnsweredWaits(Rendered):
    """The answers for one subject or several of the same code, and the bound."""

    subjects: tuple[PlayedSubject, ...]
    scope: SmallScope  # of which all scenarios were played
    max_ranks: int  # of a drawn scenario
    seed: int  # of the drawn scenarios
    link: Link
    answers: tuple[Answer, ...] = ()  # one for each point, in the order of lines

    @property
    def names(self) -> str:
        """The names of the subjects."""
        return ", ".join(each.name for each in self.subjects)

    def with_word(self, word: NeedWord) -> list[Answer]:
        """List the answers with a word."""
        return [each for each in self.answers if each.word == word]


def joined(answers: Iterable[Answer]) -> tuple[Answer, ...]:
    """Return an answer for each point: from the subject that needs the point most.

    A line that a subject never ran has the answer of the other subjects.
    """
    by_point = dict[SyncPoint, Answer]()
    for answer in answers:
        known = by_point.get(answer.point)
        by_point[answer.point] = answer if known is None else _one(known, answer)
    ran = {_place(point) for point, each in by_point.items() if each.num_scenarios}
    found = [
        each
        for point, each in by_point.items()
        if each.num_scenarios or _place(point) not in ran
    ]
    return tuple(sorted(found, key=lambda one: one.point[::-1]))


def _place(point: SyncPoint) -> tuple[str, int]:
    return point.line.file, point.line.number


def _one(first: Answer, second: Answer) -> Answer:
    if not (first.num_scenarios and second.num_scenarios):
        return first if first.num_scenarios else second
    most, other = sorted((first, second), key=lambda one: _PRECEDENCE.index(one.word))
    return replace(
        most,
        num_scenarios=most.num_scenarios + other.num_scenarios,
        exposed_microseconds=max(most.exposed_microseconds, other.exposed_microseconds),
    )
