"""The command line: `syncverify run`, `replay` and `bank`.

Exit codes: 0 no violation, 1 violation found, 2 bad usage, subject or environment (one
line on stderr), 3 fault of the harness itself, 4 less covered than was required, 130
interrupted, 141 nobody reads on.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from syncverify.backends.choice import BACKEND_NAMES, AnyBackend, open_backend
from syncverify.backends.sim import SimBackend
from syncverify.backends.torchrun import TorchrunBackend
from syncverify.bank_command.command import bank
from syncverify.command_line import (
    BAD_USAGE,
    complain,
    ending_when_interrupted,
    leave_at_once,
)
from syncverify.errors import SyncverifyError, UsageError
from syncverify.graphs.modes import ignore_reports_of_anomalies
from syncverify.properties import check
from syncverify.replay import Recording, load
from syncverify.report.console import CommandConsole, check_folder, write
from syncverify.report.report import Report, ReportedViolation
from syncverify.report.text import diagnosis, scenario_lines, verdict, violation_text
from syncverify.sim.decisions import Decisions, Following
from syncverify.subject import Subject, resolve
from syncverify.verification import (
    DEFAULT_EXAMPLES,
    DEFAULT_RANKS,
    DEFAULT_SCHEDULES,
    check_schedules,
    draw_seed,
    run_search,
    with_witness,
)

_NAME = "syncverify"
HARNESS_FAILED = 3
COVERAGE_GAP = 4
NOBODY_READS = 141  # by convention of shells: 128 + SIGPIPE
DEFAULT_DATABASE = Path(".syncverify")

_PLAIN_LINE_EVERY = 50  # examples, where output is not a terminal

_backend_option = click.option(
    "--backend", type=click.Choice(BACKEND_NAMES), default="sim", show_default=True,
    help="Where the ranks run.",
)  # fmt: skip


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="syncverify")
def cli() -> None:
    """Verify gradient synchronizers for distributed PyTorch training."""


cli.add_command(bank)


@cli.command()
@click.argument("subject")
@_backend_option
@click.option(
    "--ranks", type=click.IntRange(min=1), default=None,
    help=f"Worlds of up to this many ranks.  [default: {DEFAULT_RANKS}]",
)  # fmt: skip
@click.option(
    "--examples", type=click.IntRange(min=1), default=DEFAULT_EXAMPLES, show_default=True,
    help="Scenarios to play.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(min=0), default=None,
    help="Same seed, same scenarios.  [default: drawn and printed]",
)  # fmt: skip
@click.option(
    "--schedules", default=DEFAULT_SCHEDULES, show_default=True,
    metavar="default|drawn|all[:N]|pct[:N]",
    help="Timings to play, where they matter: N runs a scenario at most.",
)  # fmt: skip
@click.option(
    "--time-limit", type=click.FloatRange(min=0, min_open=True), default=None,
    metavar="SECONDS", help="Stop early.",
)  # fmt: skip
@click.option(
    "--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), default=None,
    help="Write the report here.",
)  # fmt: skip
@click.option(
    "--jobs", type=click.IntRange(min=1), default=1, show_default=True,
    help="Processes that search side by side; same seed and jobs, same report.",
)  # fmt: skip
@click.option(
    "--database", type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DATABASE, show_default=True,
    help="Violations are kept here, and played first by the next run.",
)  # fmt: skip
@click.option("--no-database", is_flag=True, help="Keep nothing, play nothing first.")
@click.option(
    "--require-coverage", type=click.FloatRange(0, 100), default=None, metavar="PERCENT",
    help="Fail unless every feature value, and so many of their pairs, were met.",
)  # fmt: skip
@click.option("--show-coverage", is_flag=True, help="Print what scenarios contained.")
def run(
    subject: str,
    backend: str,
    ranks: int | None,
    examples: int,
    seed: int | None,
    schedules: str,
    time_limit: float | None,
    json_path: Path | None,
    jobs: int,
    database: Path,
    no_database: bool,  # noqa: FBT001  # click passes it by name
    require_coverage: float | None,
    show_coverage: bool,  # noqa: FBT001  # click passes it by name
) -> None:
    """Search for violations of SUBJECT: a built-in name (synchronizer, ddp, ...) or module:attribute."""
    found = resolve(subject)
    check_schedules(schedules, backend)
    check_folder(json_path)
    with closing(open_backend(backend, found)) as opened:
        if _follows(opened, found):
            return
        chosen = draw_seed() if seed is None else seed
        world = (
            opened.world_size if isinstance(opened, TorchrunBackend) else DEFAULT_RANKS
        )
        max_ranks = world if ranks is None else ranks
        console = CommandConsole(highlight=False)
        console.print(
            f"verifying {subject} on {backend}: {examples} scenarios, up to {max_ranks} "
            f"rank(s), seed {chosen}",
            soft_wrap=True,
        )
        with _SearchProgress(console, examples) as progress:
            report = run_search(
                found,
                opened,
                ranks=max_ranks,
                examples=examples,
                seed=chosen,
                schedules=schedules,
                time_limit_seconds=time_limit,
                progress=progress,
                jobs=jobs,
                database=None if no_database else database,
            )
    gap = None if require_coverage is None else report.summary.gap(require_coverage)
    _print_report(console, report, show_coverage=show_coverage)
    if json_path is not None:
        write(json_path, json.dumps(report.to_json(), indent=2, allow_nan=False))
    if gap is not None:
        click.echo(f"syncverify: {gap}", err=True)
    _leave(1 if report.violations else COVERAGE_GAP if gap else 0, opened)


@cli.command()
@click.argument("token_or_file")
@click.argument("subject")
@_backend_option
def replay(token_or_file: str, subject: str, backend: str) -> None:
    """Play one recorded violation again: TOKEN, a file that holds one, or REPORT.json#N."""
    recording = load(token_or_file)
    found = resolve(subject)
    lacking = found.capabilities.lacking(recording.scenario)
    if lacking is not None:
        raise UsageError(f"subject {subject!r} does not promise {lacking}")
    with closing(open_backend(backend, found)) as opened:
        if _follows(opened, found):
            return
        decisions = Decisions(Following(recording.schedule))
        if isinstance(opened, SimBackend):
            result = opened.run_scheduled(recording.scenario, found, decisions)
        else:
            _note_schedule(recording, backend)
            result = opened.run(recording.scenario, found)
        taken = tuple(decisions.taken)
        entries = [
            with_witness(
                ReportedViolation(violation, recording.scenario, taken), found, opened
            )
            for violation in check(recording.scenario, result, found.capabilities)
        ]
    identity = (recording.property, recording.cause)
    same = [entry for entry in entries if entry.violation.identity == identity]
    for entry in same or entries:
        click.echo(violation_text(entry, subject=subject, backend=backend) + "\n")
    named = f"{recording.property} ({recording.cause})"
    if same:
        click.echo(f"REPRODUCED: {subject} violates {named} on {backend}")
    elif entries:
        click.echo(
            f"NOT REPRODUCED: {subject} violates something else than {named} on {backend}"
        )
    else:
        click.echo("\n".join(scenario_lines(recording.scenario)))
        click.echo(f"NOT REPRODUCED: {subject} holds {named} on {backend}")
    _leave(1 if entries else 0, opened)


def _note_schedule(recording: Recording, backend: str) -> None:
    """Say what of a token only simulated ranks can follow."""
    choices = sum(map(bool, recording.schedule.choices))
    if choices:
        click.echo(
            f"note: the token asks {choices} time(s) for other timing than by default, "
            f"which only --backend sim can follow; on {backend} the machine's own decides"
        )


def _follows(opened: AnyBackend, subject: Subject) -> bool:
    """Serve as a follower of a torchrun job, if this process is one."""
    if not isinstance(opened, TorchrunBackend) or opened.rank == 0:
        return False
    opened.follow(subject)
    return True


@dataclass(slots=True)
class _SearchProgress:
    """A live line on a terminal, plain lines elsewhere."""

    console: Console
    total: int
    _bar: Progress | None = None
    _task: TaskID = field(default=TaskID(0))

    def __enter__(self) -> _SearchProgress:
        if self.console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
            )
            self._bar = Progress(*columns, TimeElapsedColumn(), console=self.console)
            self._task = self._bar.add_task("searching", total=self.total)
            self._bar.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def played(self, num_examples: int, num_violations: int) -> None:
        words = f"searching, {num_violations} distinct violation(s)"
        if self._bar is not None:
            self._bar.update(self._task, completed=num_examples, description=words)
        elif num_examples % _PLAIN_LINE_EVERY == 0:
            self.console.print(f"{words}: {num_examples} of {self.total} scenarios")

    def shrinking(self, identity: tuple[str, str], num_runs: int) -> None:
        words = f"shrinking {identity[0]} ({identity[1]}), {num_runs} runs"
        if self._bar is not None:
            self._bar.update(self._task, description=words)
        elif num_runs == 1:
            self.console.print(f"shrinking {identity[0]} ({identity[1]})")


def _print_report(console: Console, report: Report, *, show_coverage: bool) -> None:
    if show_coverage:
        console.print(_coverage_table(report))
        for pair in report.summary.missing_pairs:
            console.print(f"never together: {' and '.join(pair)}", markup=False)
    for line in (*report.summary.lines(), *report.explored):
        console.print(line, markup=False, soft_wrap=True)
    text = diagnosis(report) if report.violations else verdict(report)
    console.print(text, markup=False, soft_wrap=True)


def _coverage_table(report: Report) -> Table:
    table = Table(title="scenarios that contained ...", title_justify="left")
    table.add_column("topic")
    table.add_column("scenarios by feature")
    topics = {
        **report.coverage,
        **({"schedules played": report.schedules} if report.schedules else {}),
        "judged by": report.summary.applied,
    }
    for topic, counts in topics.items():
        table.add_row(
            topic, ", ".join(f"{name}: {count}" for name, count in counts.items())
        )
    return table


def _leave(code: int, backend: AnyBackend) -> None:
    if isinstance(backend, TorchrunBackend) and backend.is_lost:
        leave_at_once(code)  # a thread of this process hangs in a collective
    raise SystemExit(code)


def main() -> None:
    """Run the command line and exit."""
    ignore_reports_of_anomalies()
    torch.set_num_threads(1)  # ranks are threads or processes of this machine already
    try:
        with ending_when_interrupted(_NAME):
            code = cli.main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        complain(_NAME, error.format_message(), BAD_USAGE)
    except UsageError as error:
        complain(_NAME, str(error), BAD_USAGE)
    except BrokenPipeError:  # as in `| head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(NOBODY_READS)
    except SyncverifyError as error:
        complain(_NAME, f"the harness itself failed: {error}", HARNESS_FAILED)
    except Exception:  # noqa: BLE001  # the last resort: a fault of ours
        traceback.print_exc()
        complain(
            _NAME,
            "the harness itself failed; please report the traceback above",
            HARNESS_FAILED,
        )
