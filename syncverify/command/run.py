"""The execution of `syncverify run`: search, print the report, write it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import click
from rich.table import Table

from syncverify.command.playing import follow_leader, leave, playing
from syncverify.command.process_exit import COMMAND_NAME, COVERAGE_GAP, VIOLATION
from syncverify.command.progress import SearchProgress
from syncverify.command.replay_files import ReplayFiles
from syncverify.command.report_so_far import ReportSoFar
from syncverify.command.verification.reported_search import (
    ObservationInterrupted,
    Observing,
    check_schedules,
    run_search,
)
from syncverify.errors import UsageError
from syncverify.plain_text import counted
from syncverify.playing.choice import AnyBackend, open_backend
from syncverify.playing.torchrun import TorchrunBackend
from syncverify.report.annotations import annotations_of, say_annotations
from syncverify.report.console import CommandConsole, check_folders, say
from syncverify.report.documents import check_documents, document_paths, write_documents
from syncverify.report.observed import in_one_line, table_lines
from syncverify.report.report import Report
from syncverify.report.text import diagnosis
from syncverify.scenario.bounds import check_ranks
from syncverify.scenario.settings import DEFAULT_RANKS, SETTINGS, Settings
from syncverify.scenario.small_scope import SmallScope
from syncverify.scenario.space import Space
from syncverify.search.campaign_file import forget
from syncverify.search.exhaustive import exhaustive_settings
from syncverify.subjects.subject import Subject, resolve
from syncverify.subjects.subject_options import check_worlds


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of the command, as the help explains them; `of` makes them of click's values."""

    subject: str
    settings: Settings
    has_ranks: bool
    files: ReplayFiles
    json_path: Path | None
    documents: Mapping[str, Path]
    tables: bool
    shown_as: str
    quiet: bool

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Return the options for values by the names that click gives."""
        own = {name for name in cls.__dataclass_fields__ if name in options}
        given = {name: options[name] for name in SETTINGS if name in options}
        has_ranks = given["ranks"] is not None
        ranks = given["ranks"] if has_ranks else DEFAULT_RANKS
        database = None if options["no_database"] else given["database"]
        # Processes take too long for features beyond the contract.
        beyond = given["backend"] == "sim" and not options["no_beyond"]
        changed = {"ranks": ranks, "database": database, "beyond": beyond}
        return cls(
            settings=Settings(**{**given, **changed}),
            has_ranks=has_ranks,
            files=ReplayFiles.of(options),
            documents=document_paths(options),
            **{name: options[name] for name in own},
        )


def execute(options: RunOptions, began: float) -> None:
    """Search for violations of a subject, report them and exit.

    `began` is the value of `time.monotonic()` at which the command began.
    """
    settings = options.settings
    progress = SearchProgress(
        console=CommandConsole(is_quiet=options.quiet),
        total=settings.examples,
        subject=options.subject,
        backend=settings.backend,
        contract=str(settings.contract or ""),
        report=ReportSoFar(options.json_path),
        names_features=options.tables,
        shows_pace=settings.cluster is not None,
        can_go_on=settings.can_go_on,
    )
    folder = settings.database
    assert folder is None or isinstance(folder, str | Path)  # by its option
    with playing(lambda: progress.in_words(folder), backend=settings.backend):
        _execute(options, progress, began)


def _execute(options: RunOptions, progress: SearchProgress, began: float) -> None:
    settings = options.settings
    subject = resolve(options.subject, settings.contract)
    check_schedules(settings.schedules, settings.backend)
    check_folders(options.json_path)
    options.files.check()
    check_documents(options.documents)
    with closing(open_backend(settings.backend, subject)) as backend:
        follow_leader(backend, subject)
        try:
            report = _search(options, subject, backend, progress)
            report = replace(report, seconds=time.monotonic() - began)
        except ObservationInterrupted as interrupt:
            _tell(options, progress, interrupt.report)
            options.files.write(interrupt.report, subject, backend)
            raise
        options.files.write(report, subject, backend)
    gap = report.gap(settings.require_coverage, settings.require_lines)
    _tell(options, progress, report)
    if report.campaign is not None:
        forget(report.campaign)
    if gap is not None:
        click.echo(f"{COMMAND_NAME}: {gap}", err=True)
    leave(VIOLATION if report.has_failed else COVERAGE_GAP if gap else 0, backend)


def _search(
    options: RunOptions,
    subject: Subject,
    backend: AnyBackend,
    progress: SearchProgress,
) -> Report:
    """Say which search follows, and search."""
    settings = replace(options.settings, progress=progress)
    if isinstance(backend, TorchrunBackend) and not options.has_ranks:
        settings = replace(settings, ranks=backend.world_size)
    if settings.exhaustive:
        settings = _exhaustive(options, settings, subject)
        progress.total = settings.examples
    ranks, own = settings.ranks, subject.capabilities
    check_ranks(backend.name, ranks)
    check_worlds(subject.factory, subject.name, ranks)
    if settings.focus:
        Space(own, ranks).require_focus(settings.focus)
    progress.console.print(
        f"verifying {options.subject} on {settings.backend}: "
        + (_size_of_scope(settings) if settings.exhaustive else _size(settings))
    )
    progress.can_skip_features = not own.fail_on_wrong
    observes = (settings.beyond or own.fail_on_wrong) and not settings.exhaustive
    progress.report.begin(subject, backend.name, settings.random_seed)
    with progress:
        observing = Observing(tell=progress.observed) if observes else None
        return run_search(subject, backend, settings, observing)


def _size(settings: Settings) -> str:
    return (
        f"{counted(settings.examples, 'scenario')}, up to "
        f"{counted(settings.ranks, 'rank')}, seed {settings.seed}"
        + (f", focus {settings.focus}" if settings.focus else "")
    )


def _size_of_scope(settings: Settings) -> str:
    return (
        f"all {settings.examples:,} scenarios of {SmallScope.parse(settings.scope)}, with all "
        "schedules; after an interrupt the same command goes on"
    )


def _exhaustive(options: RunOptions, settings: Settings, subject: Subject) -> Settings:
    """Return the settings of a search that plays all of its scope.

    Raises:
        UsageError: Options contradict each other.
    """
    if options.has_ranks:
        raise UsageError("an exhaustive search takes its ranks from --scope ranks=N")
    return exhaustive_settings(settings, subject.capabilities)


def _tell(options: RunOptions, progress: SearchProgress, report: Report) -> None:
    """Print numbers or tables, then all that fails the run; write the report."""
    parts = _tables(report) if options.tables else _numbers(report)
    for part in parts:
        progress.console.print(part)
    say_annotations(options.shown_as, annotations_of(report))
    say(diagnosis(report))
    progress.report.write_whole(report)
    write_documents(options.documents, report)


def _numbers(report: Report) -> Iterator[str]:
    """Yield a line or two on each kind of coverage; none where nothing could be played."""
    if not report.always_raises:
        yield from report.summary.lines()
        yield from report.lines.brief()
        yield from report.explored
        yield from in_one_line(
            report.beyond,
            is_violated=bool(report.violations),
            fails_on_wrong=report.fails_on_wrong,
        )


def _tables(report: Report) -> Iterator[str | Table]:
    yield _coverage_table(report)
    yield from report.summary.gap_lines()
    yield from report.summary.lines()
    yield from report.lines.lines()
    yield from report.explored
    yield from table_lines(
        report.beyond,
        is_violated=bool(report.violations),
        fails_on_wrong=report.fails_on_wrong,
    )


def _coverage_table(report: Report) -> Table:
    table = Table(title="scenarios that contained ...", title_justify="left")
    table.add_column("topic")
    table.add_column("scenarios by feature")
    played = {"schedules played": report.schedules} if report.schedules else {}
    topics = {**report.coverage, **played, "judged by": report.summary.applied}
    for topic, counts in topics.items():
        features = (f"{name}: {count}" for name, count in counts.items())
        table.add_row(topic, ", ".join(features))
    return table
