"""The file of `--html`."""

from __future__ import annotations

from pathlib import Path

from syncverify.backends.choice import AnyBackend
from syncverify.report.console import write
from syncverify.report.replayed import replayed
from syncverify.report.report import Report
from syncverify.subjects.subject import Subject


def write_page(
    path: Path | None, report: Report, subject: Subject, backend: AnyBackend | None
) -> None:
    """Play each violation of a report again, and write the report as a page.

    Args:
        path: File of the page; None to write nothing.
        report: The report.
        subject: Its subject.
        backend: Backend that plays again; None where violations end the process that plays.

    Raises:
        UsageError: The file cannot be written.
    """
    if path is None:
        return
    # Late, as the template engine is needed for this file alone.
    from syncverify.report.html.page import page_model
    from syncverify.report.html.render import rendered

    replays = [
        None if backend is None else replayed(entry, subject, backend)
        for entry in report.violations
    ]
    write(path, rendered(page_model(report, subject.capabilities, replays)))
