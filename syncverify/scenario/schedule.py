"""A schedule: the options that a run took where timing could have decided.

On a real machine, timing decides which rank moves next, or whether a collective is complete
yet. A simulated run meets such decisions one after another. Each has numbered options, and
option 0 is the machine's default. A schedule is the list of the numbers taken. Scenario and
schedule together fix a run, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from syncverify.errors import ScenarioFormatError


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision of a run.

    Attributes:
        kind: `rank` for the rank that moves next, or the question that a host asked.
        num_options: Number of options.
        chosen: Number of the option taken, from 0.
        meaning: The option taken, in words.
    """

    kind: str
    num_options: int
    chosen: int
    meaning: str


@dataclass(frozen=True, slots=True)
class Schedule:
    """The choices of a run, in order; every decision after the last one takes option 0.

    Trailing zeros say nothing and are dropped, so equal runs have equal schedules. The list
    is finite, so a schedule can delay a rank for long, but not for ever.

    Attributes:
        choices: Number of the option taken, one entry per decision.
    """

    choices: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse choices that are not option numbers, and drop trailing zeros."""
        if not all(type(choice) is int and choice >= 0 for choice in self.choices):
            raise ScenarioFormatError(
                "malformed schedule: choices are whole numbers >= 0"
            )
        last = max((n + 1 for n, c in enumerate(self.choices) if c), default=0)
        object.__setattr__(self, "choices", tuple(self.choices[:last]))

    @classmethod
    def of(cls, decisions: Iterable[Decision]) -> Self:
        """Return the schedule that repeats the decisions of a run."""
        return cls(tuple(decision.chosen for decision in decisions))

    def to_json(self) -> list[int]:
        """Return a plain list that `from_json` reads back."""
        return list(self.choices)

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Return the schedule of a result of `to_json`, or of its parsed JSON text.

        Raises:
            ScenarioFormatError: The data is not a schedule.
        """
        if not isinstance(data, list):
            raise ScenarioFormatError("malformed schedule: expected a list of choices")
        return cls(tuple(data))


DEFAULT_SCHEDULE = Schedule()


def decisions_of(schedule: Schedule) -> tuple[Decision, ...]:
    """Return decisions that lead to a schedule; their meanings are not known any more."""
    return tuple(
        Decision("rank", choice + 1, choice, f"option {choice}")
        for choice in schedule.choices
    )
