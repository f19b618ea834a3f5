"""A schedule: the options that a run took where timing could decide. And the choice of schedules.

On a real machine, timing decides which rank moves next, or whether a collective is complete
yet. A simulated run meets such decisions one after another. Each has numbered options, and
option 0 is the machine's default. A schedule is the list of the numbers taken. Scenario and
schedule together fix a run, bit for bit.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, cast

from syncverify.errors import ScenarioFormatError, UsageError


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision of a run."""

    kind: str  # `rank` for the rank that moves next, or the question that a host asked
    num_options: int
    chosen: int  # number of the option taken, from 0
    meaning: str  # the option taken, in words


@dataclass(frozen=True, slots=True)
class Schedule:
    """The choices of a run, in order; every decision after the last one takes option 0.

    Trailing zeros say nothing and are dropped, so equal runs have equal schedules. The list
    is finite, so a schedule can delay a rank for long, but not for ever.
    """

    choices: tuple[int, ...] = ()  # number of the option taken, one entry per decision

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
        """Return the schedule of parsed JSON; other data are a `ScenarioFormatError`."""
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


ScheduleMode = Literal["default", "drawn", "all", "pct"]
DEFAULT_RUNS = 100

# Extents, spelled as in the field `schedules` of a report.
SAME = "all: order cannot matter"
FIRST = "the default"
DRAWN = "the default and one drawn"
COMPLETE = "one of each class"
RANDOM = "random priorities"


@dataclass(frozen=True, slots=True)
class ScheduleChoice:
    """The schedules to play of a scenario whose schedules differ.

    Attributes:
        mode: `default`: the schedule of the simulated machine. `drawn`: that one, and one
            drawn with the scenario. `all`: one of each class of interleavings, or random
            priorities if there are too many classes. `pct`: random priorities.
        max_runs: Largest number of runs of one scenario, for `all` and `pct`.
    """

    mode: ScheduleMode = "drawn"
    max_runs: int = DEFAULT_RUNS

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the choice `default`, `drawn`, `all[:N]` or `pct[:N]`, or raise `UsageError`."""
        match = re.fullmatch(r"(default|drawn)|(all|pct)(?::([1-9][0-9]{0,8}))?", text)
        if match is None:
            raise UsageError(
                f"unknown schedules {text!r}: expected default, drawn, all, all:N, pct or "
                "pct:N (at most N runs a scenario, N >= 1)"
            )
        mode = cast("ScheduleMode", match[1] or match[2])
        return cls(mode, int(match[3] or DEFAULT_RUNS))


@dataclass(frozen=True, slots=True)
class ScheduleCoverage:
    """The part of one scenario's schedules that was played."""

    extent: str  # `SAME`, `FIRST`, `DRAWN`, `COMPLETE` or `RANDOM`
    num_classes: int = 0  # of interleavings; 0 unless the extent is `COMPLETE`
    num_interleavings: int | None = None  # in these classes; None if not counted
    # For `RANDOM`, the least probability of meeting a defect of `DEFAULT_DEPTH` ordered moves.
    probability: float = 0.0


def num_scenarios_by_extent(played: Mapping[ScheduleCoverage, int]) -> dict[str, int]:
    """Count scenarios by the extent of their schedules; extents without one are left out."""
    counts = Counter[str]()
    for each, number in played.items():
        counts[each.extent] += number
    order = (SAME, FIRST, DRAWN, COMPLETE, RANDOM)
    return {extent: counts[extent] for extent in order if counts[extent]}
