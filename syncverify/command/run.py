"""The execution of `syncverify run`: search, print the report, write it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import click
from rich.table import Table

from syncverify.command.files import write_violations
from syncverify.command.playing import ended, follow_leader, playing
from syncverify.command.process_exit import COMMAND_NAME, COVERAGE_GAP, VIOLATION
from syncverify.command.progress import SearchProgress
from syncverify.command.verification import reported_search
from syncverify.errors import UsageError
from syncverify.judge.evidence import Ended
from syncverify.judge.violation import Violation
from syncverify.plain_text import counted
from syncverify.playing.choice import AnyBackend, open_backend
from syncverify.playing.program.modules import provide_layers
from syncverify.playing.torchrun import TorchrunBackend
from syncverify.report.annotations import say_annotations
from syncverify.report.console import CommandConsole, check_files, say
from syncverify.report.observed import in_one_line, table_lines
from syncverify.report.report import Report
from syncverify.report.results import account_of, write_account
from syncverify.report.run import annotations_of_run, diagnosis
from syncverify.scenario.replay_token import decode
from syncverify.scenario.schedule import decisions_of
from syncverify.scenario.settings import RunOptions, Settings
from syncverify.scenario.small_scope import SmallScope
from syncverify.search.campaign_file import forget
from syncverify.search.found_violation import FoundViolation
from syncverify.search.observation import Observing
from syncverify.search.saved_violations import SavedViolations
from syncverify.search.shards import exhaustive_settings
from syncverify.search.violation_database import open_database
from syncverify.subjects.subject import Subject, resolve
from syncverify.trace.source_lines import CodeLine


def execute(options: RunOptions, began: float) -> int:
    """Search for violations of a subject from a moment of `time.monotonic()` on; report them."""
    progress = SearchProgress(
        console=CommandConsole(is_quiet=options.quiet),
        total=options.examples,
        json_path=options.json_path,
        names_features=options.tables,
        shows_pace=options.cluster is not None,
        can_go_on=options.can_go_on,
    )
    folder = options.database
    with playing(lambda: progress.in_words(folder), backend=options.backend):
        return _execute(options, progress, began)


def _execute(options: RunOptions, progress: SearchProgress, began: float) -> int:
    subject = resolve(options.subject, options.contract)
    reported_search.check_schedules(options.schedules, options.backend)
    check_files(options)
    with closing(open_backend(options.backend, subject)) as backend:
        follow_leader(backend, subject)
        try:
            report = _search(options, subject, backend, progress)
            report = replace(report, seconds=time.monotonic() - began)
        except reported_search.ObservationInterrupted as interrupt:
            _tell(options, progress, interrupt.report)
            write_violations(options, interrupt.report, subject, backend)
            raise
        write_violations(options, report, subject, backend)
    gap = report.gap(options.require_coverage, options.require_lines)
    _tell(options, progress, report)
    if report.campaign is not None:
        forget(report.campaign)
    if gap is not None:
        click.echo(f"{COMMAND_NAME}: {gap}", err=True)
    code = VIOLATION if report.has_failed else COVERAGE_GAP if gap else 0
    return ended(code, backend)


def _search(
    options: RunOptions, subject: Subject, backend: AnyBackend, progress: SearchProgress
) -> Report:
    settings: Settings = replace(options, progress=progress)
    if isinstance(backend, TorchrunBackend) and not options.has_ranks:
        settings = replace(settings, ranks=backend.world_size)
    if settings.exhaustive:
        if options.has_ranks:
            words = "an exhaustive search takes its ranks from --scope ranks=N"
            raise UsageError(words)
        settings = exhaustive_settings(settings, subject.capabilities)
        progress.total = settings.examples
    reported_search.check_search(subject, backend, settings)
    size = f"{counted(settings.examples, 'scenario')}, up to "
    size += f"{counted(settings.ranks, 'rank')}, seed {settings.seed}"
    size += f", focus {settings.focus}" if settings.focus else ""
    if settings.exhaustive:
        scope = SmallScope.parse(settings.scope)
        size = f"all {settings.examples:,} scenarios of {scope}"
        size += ", with all schedules; after an interrupt the same command goes on"
    progress.console.print(f"verifying {options.subject} on {settings.backend}: {size}")
    fails_on_wrong = subject.capabilities.fail_on_wrong
    progress.can_skip_features = not fails_on_wrong
    observes = (settings.beyond or fails_on_wrong) and not settings.exhaustive
    progress.begin(subject, backend.name, settings.random_seed)
    with progress:
        observing = Observing(tell=progress.observed) if observes else None
        return reported_search.run_search(subject, backend, settings, observing)


def _tell(options: RunOptions, progress: SearchProgress, report: Report) -> None:
    """Print numbers or tables, then all that fails the run; write the report."""
    if options.tables or not report.always_raises:  # otherwise nothing could be played
        for part in _parts(report, is_whole=options.tables):
            progress.console.print(part)
    say_annotations(options.shown_as, annotations_of_run(report))
    say(diagnosis(report))
    progress.end()
    write_account(account_of(report), options)


def record_lost(
    options: RunOptions,
    token: str,
    summary: str,
    lines: Sequence[CodeLine],
    num_runs: int,
) -> int:
    """Record a scenario that loses the process that plays it: in the database and in all files."""
    subject = resolve(options.subject, options.contract)
    provide_layers(subject.capabilities)  # the scenario may train one
    reproducer = decode(token)
    if options.database is not None:
        database = open_database(options.database, [])
        # Unshrunk: each run of the shrinker would lose a process.
        saved = SavedViolations(database, subject, options.backend)
        saved.save(token, is_shrunk=False)
    evidence = Ended(kind=reproducer.cause, details=tuple(lines))
    found = FoundViolation(
        Violation(reproducer.property, reproducer.cause, summary, evidence=evidence),
        reproducer.scenario,
        decisions_of(reproducer.schedule),
        tensors=subject.capabilities.tensors,
    )
    report = Report.of(
        subject, options.backend, [found], seed=options.random_seed, examples=num_runs
    )
    say_annotations(options.shown_as, annotations_of_run(report))
    write_violations(options, report, subject, None)
    write_account(account_of(report), options, seconds=None)
    return VIOLATION


def _parts(report: Report, *, is_whole: bool) -> Iterator[str | Table]:
    """Yield tables, or a line or two on each kind of coverage."""
    if is_whole:
        yield _coverage_table(report)
        yield from report.summary.gap_lines()
    yield from report.summary.lines()
    yield from report.lines.lines() if is_whole else report.lines.brief()
    yield from report.explored
    yield from (table_lines if is_whole else in_one_line)(
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
