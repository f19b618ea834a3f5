"""Which schedules a search plays each scenario with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, Self, cast

from syncverify.errors import UsageError

Mode = Literal["default", "drawn", "all", "pct"]
DEFAULT_RUNS = 100


@dataclass(frozen=True, slots=True)
class ScheduleChoice:
    """Which schedules to play, where a scenario has several that differ.

    Attributes:
        mode: `default`: what the simulated machine does by itself. `drawn`: one more,
            drawn with the scenario. `all`: one of each class of interleavings, and PCT
            where there are too many. `pct`: random priorities.
        max_runs: Runs of one scenario, at most, in the last two.
    """

    mode: Mode = "drawn"
    max_runs: int = DEFAULT_RUNS

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what a user wrote.

        Args:
            text: `default`, `drawn`, `all`, `all:N`, `pct` or `pct:N`.

        Returns:
            The choice.

        Raises:
            UsageError: It is none of these.
        """
        match = re.fullmatch(r"(default|drawn)|(all|pct)(?::([1-9][0-9]{0,8}))?", text)
        if match is None:
            raise UsageError(
                f"unknown schedules {text!r}: expected default, drawn, all, all:N, pct or "
                "pct:N (at most N runs a scenario, N >= 1)"
            )
        mode = cast("Mode", match[1] or match[2])
        return cls(mode, int(match[3] or DEFAULT_RUNS))
