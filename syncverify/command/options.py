"""The commands and their options.

Note [Late imports]
torch takes seconds to import, and help or a bad argument need none of it. So this module, and
those that it imports, import no torch. The function of a command imports the module that plays
when it is called.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from syncverify.command.process_exit import BAD_USAGE
from syncverify.command.shared_options import (
    SECONDS,
    FiniteNumber,
    backend_with_data,
    contract_option,
    count_option,
    device_option,
    document_options,
    examples,
    format_option,
    hang_timeout_option,
    json_file,
    json_option,
    names_torch_option,
    page_option,
    replay_files,
    report_option,
    seed_option,
    setting_option,
    setting_options,
    subject_argument,
)
from syncverify.faces.whole_step.data_words import DATA
from syncverify.plain_text import plain
from syncverify.replay_line import replay_line
from syncverify.scenario.program_token import ProgramPlay
from syncverify.scenario.settings import (
    BACKEND_NAMES,
    DEFAULT_BANK_EXAMPLES,
    DEFAULT_BANK_SEED,
    DEFAULT_RANKS,
    DEFAULT_TWIN_EXAMPLES,
    GIGABYTES_PER_SECOND,
    LATENCY_MICROSECONDS,
    PROBED_SCENARIOS,
    PROGRAM_HANG_TIMEOUT_SECONDS,
    RECIPE_NAMES,
    REPORT_DOCUMENTS,
    SCRIPT_HANG_TIMEOUT_SECONDS,
    SETTINGS,
    WAITS_EXAMPLES,
    WAITS_SCOPE,
)
from syncverify.trace.source_lines import CodeLine

# Where a replay keeps what the command that it runs has to show again.
_EXPECTED = "syncverify.expected"


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
    epilog=examples("run ddp", "run mypackage/sync.py:MySynchronizer", "run --help"),
)
@click.version_option(package_name="syncverify")
@click.pass_context
def cli(context: click.Context) -> None:
    """Verify gradient synchronizers for distributed PyTorch training."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(BAD_USAGE)
    if context.invoked_subcommand == "run":
        from syncverify.subjects.project_file import project_file

        context.default_map = {"run": project_file().of_run()}


@cli.command(
    short_help="Search for violations of a synchronizer.",
    epilog=examples(
        "run ddp",
        "run mypackage/sync.py:MySynchronizer --examples 2000 --seed 0",
        "run mypackage.sync:MySynchronizer --backend gloo --json report.json",
        "run mypackage.sync:MySynchronizer --backend fake --ranks 64",
    )
    + "\n\nDefaults of a project are in [tool.syncverify] of its pyproject.toml.",
)
@subject_argument
@setting_options(
    ranks={
        "default": None,
        "help": f"{SETTINGS['ranks'].meaning}  [default: {DEFAULT_RANKS}]",
    }
)
@click.option(
    "--no-database", is_flag=True,
    help="Keep no violations and play none first; overrides the project's default.",
)  # fmt: skip
@click.option(
    "--no-beyond", is_flag=True,
    help="Skip features beyond the contract, which take two thirds of the time on sim.",
)  # fmt: skip
@report_option
@replay_files
@document_options
@format_option
@click.option(
    "--tables", is_flag=True,
    help="Print tables: what scenarios contained, lines, features beyond the contract.",
)  # fmt: skip
@click.option(
    "--quiet", "-q", is_flag=True, help="Print violations and the verdict alone."
)
def run(**options: Any) -> None:
    """Search for violations of SUBJECT.

    SUBJECT is a built-in name (synchronizer, ddp, ...), module:attribute or file.py:attribute.
    """
    began = time.monotonic()  # the import of torch is a part of the wait

    def play() -> None:
        from syncverify.command.run import RunOptions, execute

        execute(RunOptions.of(options), began)

    def record(token: str, summary: str, lines: list[CodeLine], num_runs: int) -> None:
        from syncverify.command.lost import record

        record(token, summary, lines, num_runs, options)

    is_kept = options["database"] and not options["no_database"]
    files = (options[f"{name}_path"] for name in ("json", "html", *REPORT_DOCUMENTS))
    is_told = options["shown_as"] != "text"
    keeps_nothing = not (is_kept or is_told or any(files))
    _play_owned(play, options, None if keeps_nothing else record)


@cli.command(
    short_help="Find the contract that a synchronizer keeps.",
    epilog=examples("probe mypackage.sync:MySynchronizer --output contract.toml"),
)
@subject_argument
@contract_option
@backend_with_data
@setting_option("ranks")
@count_option("--scenarios", PROBED_SCENARIOS, "Scenarios of each feature.")
@seed_option(0)
@click.option(
    "--output", type=json_file, default=None, metavar="FILE",
    help="Write the contract that SUBJECT keeps here, as TOML.",
)  # fmt: skip
@report_option
@format_option
def probe(**options: Any) -> None:
    """Find the contract that SUBJECT keeps: try each feature alone, print a table."""

    def play() -> None:
        from syncverify.command.probe import ProbeOptions, execute

        execute(ProbeOptions(**options))

    _play_owned(play, options)


@cli.command(
    short_help="Find the waits of a synchronizer that are needed.",
    epilog=examples(
        "waits synchronizer",
        "waits ddp ddp-comm-hook --torch-lines",
        "waits mypackage.sync:MySynchronizer --html waits.html",
    ),
)
@subject_argument
@click.argument("others", nargs=-1)
@contract_option
@setting_option(
    "scope", default=WAITS_SCOPE, show_default=True, help="Play all of this scope."
)
@count_option(
    "--examples", WAITS_EXAMPLES, "Drawn scenarios beside those of the scope."
)
@setting_option("ranks", help="Most ranks of a drawn scenario.")
@seed_option(0)
@click.option(
    "--latency", type=FiniteNumber(min=0), default=LATENCY_MICROSECONDS, show_default=True,
    metavar="MICROSECONDS", help="Latency of the link of exposed times.",
)  # fmt: skip
@click.option(
    "--bandwidth", type=FiniteNumber(min=0, min_open=True), default=GIGABYTES_PER_SECOND,
    show_default=True, metavar="GB/S", help="Bandwidth of that link.",
)  # fmt: skip
@setting_option("time_limit_seconds", help="Play no more after so many seconds.")
@setting_option("jobs", help="Processes that play; the answers are the same.")
@click.option(
    "--torch-lines", "names_torch", is_flag=True,
    help="Name waits in torch's own Python code, such as that of DDP.",
)  # fmt: skip
@json_option("Write the answers here.")
@click.option(
    "--html",
    "html_path",
    type=json_file,
    default=None,
    help="Write them here as a page.",
)
def waits(**options: Any) -> None:
    """Tell of each wait of SUBJECT whether it is needed, superfluous or undecided.

    OTHERS are subjects of the same code, such as the same class with another option: a line
    is needed if any subject needs the line.
    """

    def play() -> None:
        from syncverify.command.waits import WaitsOptions, execute

        execute(WaitsOptions(**options))

    _play_owned(play, {**options, "backend": "sim"})


@cli.command(
    short_help="Print the diagnosis of one wrong feature.",
    epilog=examples("explain report.json#wrong/1"),
)
@click.argument("place", metavar="REPORT.json#RATING/N")
def explain(place: str) -> None:
    """Print the diagnosis of a feature beyond the contract, such as report.json#wrong/1."""
    from syncverify.command.explain import execute

    execute(place)


@cli.command(
    short_help="Play one recorded violation again.",
    epilog=examples(
        "replay report.json#1",
        "replay report.json#1 mypackage.sync:MyOther",
        "replay sv2-eNot... mypackage.sync:MySynchronizer --backend gloo",
    ),
)
@click.argument("token_or_file")
@click.argument("subject", required=False)
@contract_option
@click.option(
    "--backend", type=click.Choice(BACKEND_NAMES), default=None,
    help="Where the ranks run.  [default: the report's, or sim]",
)  # fmt: skip
@replay_files
@format_option
def replay(token_or_file: str, **options: Any) -> None:
    """Play one recorded violation again: TOKEN, a file that holds one, or REPORT.json#N.

    SUBJECT is the class, the function, the training or the script. A report names it; a token
    does not.
    """
    from syncverify.command.recorded import with_recorded, words_of_program
    from syncverify.scenario.replay_token import load_program

    chosen = with_recorded(token_or_file, options)
    play = load_program(token_or_file)
    if play is not None:
        words = words_of_program(play, {**options, "subject": chosen["subject"]})
        _replay_program(play, words, chosen["subject"])
    else:
        _play_owned(lambda: _replay(token_or_file, chosen), chosen)


def _replay_program(play: ProgramPlay, words: list[str], program: str) -> None:
    """Run the command that plays a program; it says at its end what was reproduced."""
    context = click.get_current_context()
    context.meta[_EXPECTED] = play
    click.echo(f"plays again: {plain(play.line(program))}\n")
    command = cli.commands[play.face]
    with command.make_context(play.face, words, parent=context) as own:
        command.invoke(own)


def _expected() -> ProgramPlay | None:
    """Return the play that a replay expects to show the same again; None beside a replay."""
    return click.get_current_context().meta.get(_EXPECTED)


def _play_owned(
    play: Callable[[], None],
    options: Mapping[str, Any],
    record: Callable[[str, str, list[CodeLine], int], None] | None = None,
) -> None:
    """Play in a process of its own, and lose no verdict with that process."""
    from syncverify.command.owner import after_imports, owned
    from syncverify.processes.forked_process import prepare

    has_jobs = options.get("jobs", 1) > 1
    # A second play gives a verdict, and writes nothing.
    named = {name: options[name] for name in ("subject", "contract", "backend")}
    named["shown_as"] = options.get("shown_as", "text")
    preparing = partial(prepare, "syncverify.playing.worker") if has_jobs else None
    imported = after_imports(play, preparing)
    replay = (options["subject"], options["backend"], options["contract"] or "")
    owned(
        imported,
        lambda token: _replay(token, named),
        lambda token: replay_line(token, *replay),
        record,
    )


def _replay(token: str, options: Mapping[str, Any]) -> None:
    from syncverify.command.replay import execute
    from syncverify.command.replay_files import ReplayFiles

    named = (options["subject"], options["contract"], options["backend"])
    execute(token, *named, ReplayFiles.of(options), options["shown_as"])


@cli.command(
    short_help="Run any program on simulated ranks, and judge it.",
    epilog=examples(
        "simulate train.py:step --ranks 4",
        "simulate mypackage.tests:pipeline --ranks 4 --schedules all:200",
    ),
)
@click.argument("program")
@setting_option(
    "ranks", default=DEFAULT_RANKS, help="Number of ranks.", show_default=True
)
@device_option("program")
@click.option(
    "--schedules", default="default", metavar="WHICH", show_default=True,
    help="Orders of the ranks to play: default, all[:N], pct[:N].",
)  # fmt: skip
@click.option(
    "--schedule", default="", metavar="CHOICES",
    help="Choices of the first run, as a report prints them: it plays that run again.",
)  # fmt: skip
@seed_option(0)
@names_torch_option
@hang_timeout_option(PROGRAM_HANG_TIMEOUT_SECONDS)
@report_option
@page_option
def simulate(**options: Any) -> None:
    """Run PROGRAM, a function of its rank, on simulated ranks with streams, and judge it.

    PROGRAM is module:function or file.py:function.
    """
    from syncverify.command.owner import after_imports, owned

    expected = _expected()

    def play() -> None:
        from syncverify.command.simulate import SimulateOptions, execute

        execute(SimulateOptions(**options, expected=expected))

    again = f"syncverify simulate {options['program']}"
    owned(after_imports(play), None, lambda _: again)


@cli.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Run a training script as torchrun does, without GPUs, and judge it.",
    epilog=examples(
        "record --nproc 4 train.py --steps 3", "record --nproc 2 -m mypackage.train"
    ),
)
@click.option(
    "--nproc", type=click.IntRange(1, 512), default=2, show_default=True, metavar="N",
    help="Number of ranks, each a process.",
)  # fmt: skip
@click.option(
    "-m", "is_module", is_flag=True, help="SCRIPT is a module, as after `python -m`."
)
@device_option("script")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=None,
    metavar="FOLDER", help="Write the traces here.  [recorded-SCRIPT]",
)  # fmt: skip
@names_torch_option
@hang_timeout_option(SCRIPT_HANG_TIMEOUT_SECONDS)
@report_option
@page_option
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def record(**options: Any) -> None:
    """Run SCRIPT with ARGUMENTS on simulated GPUs, one process a rank, and judge it.

    The traces stay in a folder, which `syncverify judge` reads.
    """
    from syncverify.command.record import RecordOptions, execute_record

    execute_record(RecordOptions(**options, expected=_expected()))


@cli.command(epilog=examples("judge recorded-train", "judge recorded-train --html"))
@click.argument("folder", type=click.Path(path_type=Path))
@report_option
@page_option
def judge(folder: Path, json_path: Path | None, html_path: Path | None) -> None:
    """Judge the traces of a recorded script: races, early frees, mismatches, deadlocks."""
    from syncverify.command.record import execute_judge

    execute_judge(folder, json_path, html_path)


@cli.command(
    short_help="Compare a whole training step on any mesh with one rank.",
    epilog=examples(
        "parity train.py", "parity train.py --layouts dp=2,tp=2 --steps 3",
        "parity mypackage.wiring --layouts all:4",
    ),
)  # fmt: skip
@click.argument("module")
@click.option(
    "--layouts", multiple=True, metavar="LAYOUT",
    help="Axes and sizes, such as dp=2,tp=2, or all:N for all of N ranks at most; repeatable.",
)  # fmt: skip
@click.option(
    "--steps", type=click.IntRange(min=1), default=None, help="Number of steps."
)
@click.option(
    "--micro-batches", type=click.IntRange(min=1), multiple=True, metavar="N",
    help="Number of parts of each rank's batch; repeatable.",
)  # fmt: skip
@click.option("--seed", type=int, default=None, help="Seed of model and data.")
@click.option(
    "--size", multiple=True, metavar="NAME=N",
    help="An argument of build() in the place of its default, such as layers=1; repeatable.",
)  # fmt: skip
@click.option(
    "--rows", type=click.IntRange(min=1), default=None,
    help="Number of rows of the whole batch to train on.",
)  # fmt: skip
@click.option(
    "--data", type=click.Choice(DATA), multiple=True,
    help="Beside the batch as it is, play these data alone; repeatable.",
)  # fmt: skip
@click.option(
    "--time-limit", type=SECONDS, default=None, metavar="SECONDS",
    help="Start no layout after this time.",
)  # fmt: skip
@click.option("--quiet", "is_quiet", is_flag=True, help="Print no progress.")
@report_option
@click.option(
    "--html", "html_path", type=json_file, default=None, metavar="PATH",
    help="Write the report here as a page: layouts against tensors.",
)  # fmt: skip
def parity(**options: Any) -> None:
    """Train as MODULE describes on simulated meshes, and compare each step with one rank.

    MODULE is a file or a module with build, parallelize, batch, and loss or step.
    """
    from syncverify.command.owner import after_imports, owned

    expected = _expected()

    def play() -> None:
        from syncverify.command.parity import ParityOptions, execute

        execute(ParityOptions(**options, expected=expected))

    again = f"syncverify parity {options['module']}"
    owned(after_imports(play), None, lambda _: again)


@cli.command()
@click.argument(
    "dumps", nargs=-1, required=True, metavar="DUMP...", type=click.Path(path_type=Path)
)
@format_option
def read(dumps: tuple[Path, ...], shown_as: str) -> None:
    """Judge a job by its flight recorder's dumps: files, or folders of files.

    Each file is the dump of one rank, as pickle or JSON, with the rank at the end of its name.
    """
    from syncverify.command.read import execute

    execute(dumps, shown_as)


@cli.command()
@click.argument("token_or_file")
@subject_argument
@contract_option
@click.option(
    "--script", type=json_file, is_flag=False, flag_value=Path("reproduce.py"),
    required=True, metavar="[FILE]",
    help="Write the script here.  [reproduce.py without a name]",
)  # fmt: skip
def export(token_or_file: str, script: Path, **options: Any) -> None:
    """Write a script that shows the wrong gradient of a token with torch and SUBJECT alone."""

    def play() -> None:
        from syncverify.command.export.execution import execute

        execute(token_or_file, options["subject"], options["contract"], script)

    _play_owned(play, {**options, "backend": "sim"})


@cli.command(
    short_help="Write an adapter for a synchronizer of yours.",
    epilog=examples("init tests/syncverify --like hooks"),
)
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


@cli.command(
    short_help="Play the bank of known defects.",
    epilog=examples("bank --examples 50", "bank --json bank.json --jobs 2"),
)
@click.option(
    "--only", metavar="ID", multiple=True, help="Play this entry only; may be repeated."
)
@backend_with_data
@count_option(
    "--examples", DEFAULT_BANK_EXAMPLES,
    "Most scenarios of a defect; the first that shows it ends the search.",
)  # fmt: skip
@count_option(
    "--twin-examples", DEFAULT_TWIN_EXAMPLES,
    "Least scenarios of a fixed twin, in which nothing may be found.", least=0,
)  # fmt: skip
@click.option(
    "--diagnose", is_flag=True,
    help="Look for a fix of each defect, and for its guilty line in the report.",
)  # fmt: skip
@seed_option(DEFAULT_BANK_SEED)
@setting_option("jobs", help="Processes that play entries in parallel.")
@json_option("Write the table here.")
def bank(**options: Any) -> None:
    """Play the bank of known defects: is each one caught, and its fixed twin left alone?"""
    from syncverify.command.owner import after_imports, owned

    def play() -> None:
        from syncverify.command.bank.execution import BankOptions, execute

        execute(BankOptions(**options))

    # The token of a scenario does not tell the entry: the table above shows the last one.
    backend = options["backend"]
    owned(after_imports(play), None, lambda it: replay_line(it, "SUBJECT", backend))
