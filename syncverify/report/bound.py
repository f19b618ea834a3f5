"""The bound within which all scenarios hold: the result of an exhaustive search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from typing_extensions import override

from syncverify.plain_text import counted
from syncverify.scenario.schedule import COMPLETE, RANDOM, ScheduleCoverage
from syncverify.scenario.small_scope import SmallScope


@dataclass(frozen=True, slots=True)
class Bound:
    """What an exhaustive search has played of a scope.

    Attributes:
        scope: The scope.
        num_scenarios: Number of its scenarios.
        num_played: Number of those that were played.
        num_undecided: Number of those with more classes of schedules than were played.
        num_branching: Number of those with several classes, each of which was played.
        num_classes: Number of their classes.
        num_violations: Number of distinct violations.
    """

    scope: SmallScope
    num_scenarios: int
    num_played: int
    num_undecided: int
    num_branching: int
    num_classes: int
    num_violations: int

    @classmethod
    def of(
        cls,
        scope: SmallScope,
        num_scenarios: int,
        num_played: int,
        schedules: Mapping[ScheduleCoverage, int],
        num_violations: int,
    ) -> Self:
        """Sum up the schedules that were played."""
        complete = {each: n for each, n in schedules.items() if each.extent == COMPLETE}
        return cls(
            scope=scope,
            num_scenarios=num_scenarios,
            num_played=num_played,
            num_undecided=sum(
                n for each, n in schedules.items() if each.extent == RANDOM
            ),
            num_branching=sum(complete.values()),
            num_classes=sum(
                each.num_classes * number for each, number in complete.items()
            ),
            num_violations=num_violations,
        )

    @property
    def is_proof(self) -> bool:
        """Tell whether all scenarios of the scope hold, with all schedules."""
        return not self.num_violations and self.gap is None

    @property
    def gap(self) -> str | None:
        """What was not played, in words; None if nothing."""
        if self.num_played < self.num_scenarios:
            left = self.num_scenarios - self.num_played
            return (
                f"{left:,} of {self.num_scenarios:,} scenarios of the scope were not played; the "
                "same command goes on"
            )
        if self.num_undecided:
            return (
                f"{counted(self.num_undecided, 'scenario')} of the scope had more classes of "
                "schedules than were played; raise N of --schedules all:N"
            )
        return None

    @override
    def __str__(self) -> str:
        """Say what holds within the bound, or what was played of it."""
        classes = (
            f"order matters in {self.num_branching:,} of them, and each of their "
            f"{self.num_classes:,} classes of schedules was played"
            if self.num_branching
            else "order matters in none of them"
        )
        if self.is_proof:
            return f"all {self.num_scenarios:,} of them hold, with all schedules: {classes}"
        return f"{self.num_played:,} of {self.num_scenarios:,} were played: {classes}"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "scope": str(self.scope),
            "scenarios": self.num_scenarios,
            "played": self.num_played,
            "undecided": self.num_undecided,
            "branching": self.num_branching,
            "classes": self.num_classes,
            "holds": self.is_proof,
        }
