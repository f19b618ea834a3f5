"""The record of a scenario that loses the process that plays it: database and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from syncverify.command.replay_files import ReplayFiles
from syncverify.judge.evidence import Ended
from syncverify.judge.violation import Violation
from syncverify.playing.program.modules import provide_layers
from syncverify.report.annotations import annotations_of, say_annotations
from syncverify.report.console import write_json
from syncverify.report.documents import document_paths, write_documents
from syncverify.report.report import Report
from syncverify.scenario.replay_token import decode
from syncverify.scenario.schedule import decisions_of
from syncverify.search.found_violation import FoundViolation
from syncverify.search.saved_violations import SavedViolations, open_database
from syncverify.subjects.subject import Subject, resolve
from syncverify.trace.source_lines import CodeLine


def record(
    token: str,
    summary: str,
    lines: Sequence[CodeLine],
    num_runs: int,
    options: Mapping[str, Any],
) -> None:
    """Save the violation for the next run, write its files, print its annotation.

    Args:
        token: Token of the violation.
        summary: The violation in one sentence.
        lines: The subject's lines in a process that kept Python from running.
        num_runs: Number of scenarios that started.
        options: Options of `syncverify run`.

    Raises:
        UsageError: A file cannot be written.
    """
    subject = resolve(options["subject"], options["contract"])
    provide_layers(subject.capabilities)  # the scenario may train one
    reproducer = decode(token)
    if options["database"] and not options["no_database"]:
        database = open_database(options["database"], [])
        # Unshrunk: each run of the shrinker would lose a process.
        SavedViolations(database, subject, options["backend"]).save_unshrunk(token)
    evidence = Ended(kind=reproducer.cause, details=tuple(lines))
    violation = Violation(
        reproducer.property, reproducer.cause, summary, evidence=evidence
    )
    found = FoundViolation(
        violation,
        reproducer.scenario,
        decisions_of(reproducer.schedule),
        tensors=subject.capabilities.tensors,
    )
    report = Report.without_coverage(
        subject,
        options["backend"],
        [found],
        seed=options["seed"] or 0,
        examples=num_runs,
    )
    _write(report, subject, options)


def _write(report: Report, subject: Subject, options: Mapping[str, Any]) -> None:
    say_annotations(options["shown_as"], annotations_of(report))
    ReplayFiles(html=options["html_path"]).write(report, subject, None)
    write_documents(document_paths(options), report)
    unknown = {"seed": options["seed"], "seconds": None}
    write_json(options["json_path"], report.to_json() | unknown)
