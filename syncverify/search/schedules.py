"""The schedules that a search plays each scenario with, and the part of them that it covers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self, cast

from syncverify.errors import UsageError

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
        """Return the choice that a user wrote: `default`, `drawn`, `all[:N]` or `pct[:N]`.

        Raises:
            UsageError: The text is none of these.
        """
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
    """The part of one scenario's schedules that was played.

    Attributes:
        extent: `SAME`, `FIRST`, `DRAWN`, `COMPLETE` or `RANDOM`.
        num_classes: Number of classes of interleavings; 0 unless the extent is `COMPLETE`.
        num_interleavings: Number of interleavings in these classes; None if not counted.
        probability: For `RANDOM`, the least probability of meeting a defect of
            `DEFAULT_DEPTH` ordered moves.
    """

    extent: str
    num_classes: int = 0
    num_interleavings: int | None = None
    probability: float = 0.0


def num_scenarios_by_extent(played: Mapping[ScheduleCoverage, int]) -> dict[str, int]:
    """Count scenarios by the extent of their schedules; extents without one are left out."""
    counts = Counter[str]()
    for each, number in played.items():
        counts[each.extent] += number
    order = (SAME, FIRST, DRAWN, COMPLETE, RANDOM)
    return {extent: counts[extent] for extent in order if counts[extent]}
