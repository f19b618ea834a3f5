"""The result of a simulation: its values, and its report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from syncverify.report.console import write
from syncverify.simulation.outcome import Outcome
from syncverify.simulation.page import page_of
from syncverify.simulation.text import json_of, text_of


class ProgramIsWrongError(AssertionError):
    """A simulation found violations; the text is its report."""


@dataclass(frozen=True, slots=True)
class Simulation(Outcome):
    """The outcome of a program on all of its ranks; `str()` gives the report."""

    @override
    def __str__(self) -> str:
        return text_of(self)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return json_of(self)

    def write_html(self, path: Path) -> None:
        """Write the report as one page, with the run tick by tick.

        Raises:
            UsageError: The file cannot be written.
        """
        write(path, page_of(self))

    def check(self) -> None:
        """Do nothing if the program was played and nothing is wrong.

        Raises:
            ProgramIsWrongError: A violation was found, or the program was not played.
        """
        if not self.is_right:
            raise ProgramIsWrongError(str(self))
