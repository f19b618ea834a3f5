"""The answer for each synchronization point of a subject."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from syncverify.explain.waits.exposed_time import Link
from syncverify.scenario.small_scope import SmallScope
from syncverify.trace.sync_points import SyncPoint

NeedWord = Literal["needed", "superfluous", "undecided"]
NEED_WORDS: Final[tuple[NeedWord, ...]] = get_args(NeedWord)
# Why a point is undecided.
WhyUndecided = Literal[
    "", "never ran", "schedules", "time limit", "not simulated", "process lost"
]


@dataclass(frozen=True, slots=True)
class HarmWithout:
    """A violation that shows without a point.

    Attributes:
        token: Scenario that shows it.
        is_of_model: Whether the traces without the edge show it; a play without the call does
            otherwise.
        outcome: The wrong gradient in words, of a play without the call; "" where none was shown.
        expected: Elements of the right gradient, where known.
        observed: Elements of the wrong one, where known.
    """

    property: str
    cause: str
    token: str
    is_of_model: bool
    outcome: str = ""
    expected: tuple[float, ...] | None = None
    observed: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The word for one point.

    Attributes:
        code: Code of its line.
        word: `needed`: something breaks without it. `superfluous`: all scenarios within the
            bound hold without it. `undecided`: neither is known.
        num_scenarios: Number of scenarios in which it ran.
        harm: The violation without it; None if it is not needed.
        exposed_microseconds: Most time by which steps of a scenario end sooner without it, a step.
        reason: Why it is undecided; "" if it is not.
    """

    point: SyncPoint
    code: str
    word: NeedWord
    num_scenarios: int
    harm: HarmWithout | None = None
    exposed_microseconds: float = 0.0
    reason: WhyUndecided = ""


@dataclass(frozen=True, slots=True)
class PlayedSubject:
    """A subject, and the number of scenarios that were played.

    Attributes:
        name: Its name.
        num_in_scope: Number of scenarios of the scope.
        num_drawn: Number of drawn scenarios beyond them.
        num_refused: Number of scenarios that it refused, as its contract allows.
        num_not_simulated: Number of scenarios that the simulated machine refused.
        wrong: Tokens of scenarios that break with all waits, which say nothing of any wait.
    """

    name: str
    num_in_scope: int
    num_drawn: int
    num_refused: int = 0
    num_not_simulated: int = 0
    wrong: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AnsweredWaits:
    """The answers for one subject or several of the same code, and the bound.

    Attributes:
        subjects: The subjects.
        scope: Scope of which all scenarios were played.
        max_ranks: Largest world of a drawn scenario.
        seed: Seed of the drawn scenarios.
        answers: One for each point, in the order of lines.
    """

    subjects: tuple[PlayedSubject, ...]
    scope: SmallScope
    max_ranks: int
    seed: int
    link: Link
    answers: tuple[Answer, ...] = field(default=())

    @property
    def names(self) -> str:
        """The names of the subjects."""
        return ", ".join(each.name for each in self.subjects)

    def with_word(self, word: NeedWord) -> list[Answer]:
        """List the answers with a word."""
        return [each for each in self.answers if each.word == word]
