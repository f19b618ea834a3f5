"""The files that show a violation once more: a page, a trace for Perfetto, dumps."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syncverify.errors import UsageError
from syncverify.judge.dumps.writing import dumps_of
from syncverify.playing.choice import AnyBackend
from syncverify.report.console import check_folders, say, write, write_json
from syncverify.report.evidence import remedy_of
from syncverify.report.report import Report
from syncverify.search.found_violation import FoundViolation
from syncverify.search.replayed import Replayed, shown_again
from syncverify.subjects.subject import Subject
from syncverify.trace.timeline.timeline import timeline_of
from syncverify.trace.timeline.trace_events import trace_events


@dataclass(frozen=True, slots=True)
class ReplayFiles:
    """Paths of files; None for files that are not written.

    Attributes:
        html: Page of the report.
        trace: Timeline of the first violation, in the trace event format.
        dumps: Folder of dumps of the first violation, in the form of the flight recorder.
    """

    html: Path | None = None
    trace: Path | None = None
    dumps: Path | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ReplayFiles:
        """Return the paths that the options of a command name."""
        return cls(
            *(options.get(f"{name}_path") for name in ("html", "trace", "dumps"))
        )

    def __bool__(self) -> bool:
        """Tell whether there is a file to write."""
        return any((self.html, self.trace, self.dumps))

    def check(self) -> None:
        """Raise UsageError for a file in a missing folder, before a search is run for it."""
        check_folders(self.html, self.trace, self.dumps)

    def write(
        self,
        report: Report,
        subject: Subject,
        backend: AnyBackend | None,
        otherwise: FoundViolation | None = None,
    ) -> None:
        """Play each violation of a report again, and write the files.

        Args:
            report: The report.
            subject: Its subject.
            backend: Backend that plays again; None where violations end the process.
            otherwise: Scenario whose run is shown where the report has no violation.

        Raises:
            UsageError: A file cannot be written.
        """
        if not self:
            return
        entries = report.violations or ((otherwise,) if otherwise else ())
        runs = [
            None if backend is None else shown_again(entry, subject, backend)
            for entry in entries
        ]
        if self.html is not None:
            # Late, as the template engine is needed for this file alone.
            from syncverify.report.html.page import page_model
            from syncverify.report.html.render import rendered

            runs_of_violations = runs[: len(report.violations)]
            write(
                self.html,
                rendered(page_model(report, subject.capabilities, runs_of_violations)),
            )
        self._write_first(runs)

    def _write_first(self, runs: Sequence[Replayed | None]) -> None:
        """Write the files that show one run."""
        if self.trace is None and self.dumps is None:
            return
        first = next((run for run in runs if run is not None), None)
        if first is None:
            for path in filter(None, (self.trace, self.dumps)):
                say(
                    f"note: no violation was played again, so {str(path)!r} is not written"
                )
            return
        traces = [rank_run.trace for rank_run in first.run.ranks]
        if self.trace is not None:
            remedy = remedy_of(first.violation)
            values = trace_events(timeline_of(traces), first.race, remedy)
            write_json(self.trace, values)
        if self.dumps is not None:
            _write_dumps(self.dumps, dumps_of(traces))


def _write_dumps(folder: Path, dumps: Mapping[int, Mapping[str, Any]]) -> None:
    """Write one file a rank, by the names that the recorder and its analyzer use."""
    try:
        folder.mkdir(exist_ok=True)
        for rank, values in dumps.items():
            (folder / f"rank_{rank}").write_bytes(pickle.dumps(values, protocol=2))
    except OSError as error:
        raise UsageError(f"cannot write {str(folder)!r}: {error.strerror}") from error
