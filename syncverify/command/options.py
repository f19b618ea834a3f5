"""The commands and their options.

Note [Late imports]
torch takes seconds to import, and help or a bad argument need none of it. So this module
declares all options and imports click alone. The function of a command imports the module
that plays when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from syncverify import bounds
from syncverify.defaults import (
    BACKEND_NAMES,
    DEFAULT_BANK_EXAMPLES,
    DEFAULT_BANK_SEED,
    DEFAULT_EXAMPLES,
    DEFAULT_RANKS,
    DEFAULT_SCHEDULES,
    DEFAULT_TWIN_EXAMPLES,
    PROBED_SCENARIOS,
    RECIPE_NAMES,
)
from syncverify.replay_line import replay_line

DEFAULT_DATABASE = Path(".syncverify")

Option = Callable[[Callable[..., Any]], Callable[..., Any]]


def _backend_option(*names: str) -> Option:
    return click.option(
        "--backend", type=click.Choice(names), default="sim", show_default=True,
        help="Where the ranks run.",
    )  # fmt: skip


def _number_option(
    name: str, default: int | None, words: str, least: int = 1, most: int | None = None
) -> Option:
    """Return an option that is an integer from `least` to `most`."""
    return click.option(
        name, type=click.IntRange(least, most), default=default,
        show_default=default is not None, help=words,
    )  # fmt: skip


def _count_option(name: str, default: int, words: str, least: int = 1) -> Option:
    return _number_option(name, default, words, least, bounds.MAX_COUNT)


def _jobs_option(words: str) -> Option:
    return _number_option("--jobs", 1, words, most=bounds.MAX_JOBS)


def _seed_option(default: int) -> Option:
    return _number_option("--seed", default, "Same seed, same scenarios.", least=0)


subject_argument = click.argument("subject")
any_backend = _backend_option(*BACKEND_NAMES)
backend_with_data = _backend_option("sim", "gloo")
contract_option = click.option(
    "--contract", default=None, metavar="NAME|FILE",
    help="What SUBJECT is asked for: plain, everything, a built-in subject's name, or a "
    "TOML file.  [default: the subject's own, or plain]",
)  # fmt: skip
json_file = click.Path(dir_okay=False, path_type=Path)


def _json_option(words: str) -> Option:
    return click.option("--json", "json_path", type=json_file, default=None, help=words)


report_option = _json_option("Write the report here.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="syncverify")
def cli() -> None:
    """Verify gradient synchronizers for distributed PyTorch training."""


@cli.command()
@subject_argument
@any_backend
@contract_option
@_number_option(
    "--ranks", None, f"Worlds of up to this many ranks.  [default: {DEFAULT_RANKS}]"
)
@_count_option("--examples", DEFAULT_EXAMPLES, "Scenarios to play.")
@_number_option(
    "--seed", None, "Same seed, same scenarios.  [default: drawn and printed]", least=0
)
@click.option(
    "--schedules", default=DEFAULT_SCHEDULES, show_default=True,
    metavar="default|drawn|all[:N]|pct[:N]",
    help="Timings to play, where they matter: N runs a scenario at most.",
)  # fmt: skip
@click.option(
    "--time-limit", type=click.FloatRange(min=0, min_open=True), default=None,
    metavar="SECONDS", help="Stop early.",
)  # fmt: skip
@report_option
@_jobs_option("Processes that search side by side; same seed and jobs, same report.")
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
@click.option(
    "--fail-under-lines", type=click.FloatRange(0, 100), default=None, metavar="PERCENT",
    help="Fail unless so many lines of the subject's functions ran (sim and fake).",
)  # fmt: skip
@click.option(
    "--stop-at-first", is_flag=True,
    help="End at the first violation: shrink and report that one alone.",
)  # fmt: skip
@click.option(
    "--no-beyond", is_flag=True,
    help="Do not observe features beyond the contract, which sim does by default.",
)  # fmt: skip
@click.option("--show-coverage", is_flag=True, help="Print what scenarios contained.")
def run(**options: Any) -> None:
    """Search for violations of SUBJECT.

    SUBJECT is a built-in name (synchronizer, ddp, ...), module:attribute or file.py:attribute.
    """

    def play() -> None:
        from syncverify.command.run import RunOptions, execute

        execute(RunOptions(**options))

    def record(token: str, summary: str, lines: list[str], num_runs: int) -> None:
        from syncverify.command.lost import record

        record(token, summary, lines, num_runs, options)

    keeps_nothing = options["no_database"] and not options["json_path"]
    _play_owned(play, options, None if keeps_nothing else record)


@cli.command()
@subject_argument
@contract_option
@backend_with_data
@_number_option("--ranks", DEFAULT_RANKS, "Worlds of up to this many ranks.")
@_count_option("--scenarios", PROBED_SCENARIOS, "Scenarios of each feature.")
@_seed_option(0)
@click.option(
    "--output", type=json_file, default=None, metavar="FILE",
    help="Write the contract that SUBJECT keeps here, as TOML.",
)  # fmt: skip
@report_option
def probe(**options: Any) -> None:
    """Find the contract that SUBJECT keeps: try each feature alone, print a table."""

    def play() -> None:
        from syncverify.command.probe import ProbeOptions, execute

        execute(ProbeOptions(**options))

    _play_owned(play, options)


@cli.command()
@click.argument("place", metavar="REPORT.json#WORD/N")
def explain(place: str) -> None:
    """Print the diagnosis of a feature beyond the contract, such as report.json#wrong/1."""
    from syncverify.command.explain import execute

    execute(place)


@cli.command()
@click.argument("token_or_file")
@subject_argument
@contract_option
@any_backend
def replay(token_or_file: str, **options: Any) -> None:
    """Play one recorded violation again: TOKEN, a file that holds one, or REPORT.json#N."""
    _play_owned(lambda: _replay(token_or_file, options), options)


def _play_owned(
    play: Callable[[], None],
    options: Mapping[str, Any],
    record: Callable[[str, str, list[str], int], None] | None = None,
) -> None:
    """Play in a process of its own, and lose no verdict with that process."""
    from syncverify.command.owner import owned

    line = replay_line(
        "{}", options["subject"], options["backend"], options["contract"] or ""
    )
    owned(play, lambda token: _replay(token, options), line, record)


def _replay(token: str, options: Mapping[str, Any]) -> None:
    from syncverify.command.replay import execute

    execute(token, options["subject"], options["contract"], options["backend"])


@cli.command()
@click.argument("path", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--like", type=click.Choice(RECIPE_NAMES), required=True,
    help="Kind of your synchronizer: a wrapper of a module, a class with hooks, a wrapper "
    "of an optimizer, a framework with state of the process.",
)  # fmt: skip
def init(path: Path, like: str) -> None:
    """Write an adapter for a synchronizer of yours, with test and contract, into PATH."""
    from syncverify.command.init import execute

    execute(path, like)


@cli.command()
@click.option(
    "--only", metavar="ID", multiple=True, help="Play this entry only; may be repeated."
)
@backend_with_data
@_count_option(
    "--examples", DEFAULT_BANK_EXAMPLES,
    "Scenarios a defect, at most: the first that shows it ends the search.",
)  # fmt: skip
@_count_option(
    "--twin-examples", DEFAULT_TWIN_EXAMPLES,
    "Scenarios a fixed twin, at least, in which nothing may be found.", least=0,
)  # fmt: skip
@click.option(
    "--diagnose", is_flag=True,
    help="Look for a fix of each defect, and for its guilty line in the report.",
)  # fmt: skip
@_seed_option(DEFAULT_BANK_SEED)
@_jobs_option("Processes that play entries side by side.")
@_json_option("Write the table here.")
def bank(**options: Any) -> None:
    """Play the bank of known defects: is each one caught, and its fixed twin left alone?"""
    from syncverify.command.owner import owned

    def play() -> None:
        from syncverify.command.bank.execution import BankOptions, execute

        execute(BankOptions(**options))

    # The token of a scenario does not tell the entry: the table above shows the last one.
    line = replay_line("{}", "SUBJECT", options["backend"])
    owned(play, None, line)
