"""The execution of `syncverify run`: search, print the report, write it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.table import Table

from syncverify.backends.choice import AnyBackend, open_backend
from syncverify.backends.torchrun import TorchrunBackend
from syncverify.bounds import check_ranks
from syncverify.command.playing import follow_leader, leave, playing
from syncverify.command.process_exit import COMMAND_NAME, COVERAGE_GAP, VIOLATION
from syncverify.command.progress import SearchProgress
from syncverify.command.replay_files import ReplayFiles
from syncverify.command.report_so_far import ReportSoFar
from syncverify.defaults import DEFAULT_RANKS
from syncverify.plain_text import counted
from syncverify.report.annotations import say_annotations
from syncverify.report.beyond import ObservationInterrupted, Observing
from syncverify.report.console import CommandConsole, check_folder, say, write_json
from syncverify.report.observed_table import in_one_line, table_lines
from syncverify.report.report import Report
from syncverify.report.sarif import sarif_log
from syncverify.report.text import diagnosis
from syncverify.scenario.space import Space
from syncverify.subjects.subject import Subject, resolve
from syncverify.subjects.subject_options import check_worlds
from syncverify.verification import (
    check_schedules,
    draw_seed,
    run_search,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Values of the options, by the names that click gives; the help explains each."""

    subject: str
    contract: str | None
    backend: str
    ranks: int | None
    examples: int
    seed: int | None
    schedules: str
    time_limit: float | None
    json_path: Path | None
    html_path: Path | None
    trace_path: Path | None
    dumps_path: Path | None
    sarif_path: Path | None
    jobs: int
    database: Path | None
    no_database: bool
    require_coverage: float | None
    fail_under_lines: float | None
    tables: bool
    stop_at_first: bool
    no_beyond: bool
    focus: str | None
    shown_as: str
    quiet: bool

    @property
    def replay_files(self) -> ReplayFiles:
        """Return the files that show violations once more."""
        return ReplayFiles(self.html_path, self.trace_path, self.dumps_path)

    @property
    def kept_in(self) -> Path | None:
        """Return the folder of violations; None to keep nothing."""
        return None if self.no_database else self.database


def execute(options: RunOptions, began: float) -> None:
    """Search for violations of a subject, report them and exit.

    `began` is the value of `time.monotonic()` at which the command began.
    """
    progress = SearchProgress(
        CommandConsole(is_quiet=options.quiet),
        options.examples,
        options.subject,
        options.backend,
        options.contract or "",
        ReportSoFar(options.json_path),
        names_features=options.tables,
    )
    with playing(lambda: progress.in_words(options.kept_in), backend=options.backend):
        _execute(options, progress, began)


def _execute(options: RunOptions, progress: SearchProgress, began: float) -> None:
    subject = resolve(options.subject, options.contract)
    check_schedules(options.schedules, options.backend)
    check_folder(options.json_path)
    options.replay_files.check()
    check_folder(options.sarif_path)
    with closing(open_backend(options.backend, subject)) as backend:
        follow_leader(backend, subject)
        try:
            report = _search(options, subject, backend, progress)
            report = replace(report, seconds=time.monotonic() - began)
        except ObservationInterrupted as interrupt:
            _tell(options, progress, interrupt.report)
            options.replay_files.write(interrupt.report, subject, backend)
            raise
        options.replay_files.write(report, subject, backend)
    gap = report.gap(options.require_coverage, options.fail_under_lines)
    _tell(options, progress, report)
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
    most = backend.world_size if isinstance(backend, TorchrunBackend) else DEFAULT_RANKS
    ranks = options.ranks or most
    check_ranks(backend.name, ranks)
    check_worlds(subject.factory, subject.name, ranks)
    if options.focus:
        Space(subject.capabilities, ranks).require_focus(options.focus)
    seed = draw_seed() if options.seed is None else options.seed
    progress.console.print(
        f"verifying {options.subject} on {options.backend}: "
        f"{counted(options.examples, 'scenario')}, up to {counted(ranks, 'rank')}, seed {seed}"
        + (f", focus {options.focus}" if options.focus else ""),
    )
    progress.report.begin(subject, backend.name, seed)
    with progress:
        return run_search(
            subject,
            backend,
            ranks=ranks,
            examples=options.examples,
            seed=seed,
            schedules=options.schedules,
            time_limit_seconds=options.time_limit,
            progress=progress,
            jobs=options.jobs,
            database=options.kept_in,
            stop_at_first=options.stop_at_first,
            observing=_observing(options, subject, progress),
            focus=options.focus,
        )


def _observing(
    options: RunOptions, subject: Subject, progress: SearchProgress
) -> Observing | None:
    """Return how features beyond the contract are observed; processes would take long."""
    is_wanted = options.backend == "sim" and not options.no_beyond
    progress.can_skip_features = not subject.capabilities.fail_on_wrong
    if is_wanted or subject.capabilities.fail_on_wrong:
        return Observing(tell=progress.observed)
    return None


def _tell(options: RunOptions, progress: SearchProgress, report: Report) -> None:
    """Print numbers or tables, then all that fails the run; write the report."""
    for part in _tables(report) if options.tables else _numbers(report):
        progress.console.print(part)
    say_annotations(options.shown_as, report)
    say(diagnosis(report))
    progress.report.write_whole(report)
    write_json(options.sarif_path, sarif_log(report))


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
