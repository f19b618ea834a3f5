"""The report of a search that has not ended, in the file of `--json`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from syncverify.report.console import write_json
from syncverify.report.report import Report
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Identity
from syncverify.subjects.subject import Subject


@dataclass(slots=True)
class ReportSoFar:
    """Writes what was found at the moment at which it is found, and at an interrupt.

    A process that does not hear Ctrl-C, or is killed, leaves the file as well. The whole
    report takes its place.

    Attributes:
        path: File of the report; None to write nothing.
        found: Violations by identity, the smallest scenario of each that is known.
    """

    path: Path | None
    found: dict[Identity, FoundViolation] = field(default_factory=dict)
    num_played: int = 0
    _report: Report | None = None
    _began: float = 0.0

    def begin(self, subject: Subject, backend: str, seed: int) -> None:
        """Note a search that begins."""
        self._report = Report.without_coverage(
            subject, backend, seed=seed, is_interrupted=True
        )
        self._began = time.monotonic()

    def note(self, violation: FoundViolation) -> None:
        """Note a violation that was met or shrunk, and write it."""
        self.found[violation.violation.identity] = violation
        self.write()

    def write(self) -> None:
        """Write what was found until now, while no whole report is there.

        Raises:
            UsageError: The file cannot be written.
        """
        if self._report is not None and self.path is not None:
            report = replace(
                self._report,
                examples=self.num_played,
                seconds=time.monotonic() - self._began,
                violations=tuple(self.found.values()),
            )
            write_json(self.path, report.to_json())

    def write_whole(self, report: Report) -> None:
        """Write the report of the search, which has ended.

        Raises:
            UsageError: The file cannot be written.
        """
        self._report = None
        write_json(self.path, report.to_json())
