"""The commands.

Note [Late imports]
torch takes seconds to import, and help or a bad argument need none of it. So this module, and
those that it imports, import no torch. `_later` imports the module that plays when it is called.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name

import click
from click.core import ParameterSource

from syncverify.command.click_options import examples, takes
from syncverify.command.process_exit import BAD_USAGE
from syncverify.plain_text import plain
from syncverify.replay_line import replay_line
from syncverify.scenario import settings
from syncverify.scenario.replay_token import ProgramPlay
from syncverify.trace.source_lines import CodeLine

# Where a replay keeps what the command that it runs has to show again.
_EXPECTED = "syncverify.expected"


def _later(place: str, *arguments: object) -> Callable[[], int]:
    """Return the call of a function of another module, `module:function` of this folder."""
    return lambda: resolve_name(f"syncverify.command.{place}")(*arguments)


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
@takes(settings.RunOptions)
def run(options: settings.RunOptions) -> int:
    """Search for violations of SUBJECT.

    SUBJECT is a built-in name (synchronizer, ddp, ...), module:attribute or file.py:attribute.
    """
    began = time.monotonic()  # the import of torch is a part of the wait
    source = click.get_current_context().get_parameter_source("ranks")
    chosen = replace(
        options,
        has_ranks=source is not ParameterSource.DEFAULT,
        database=None if options.no_database else options.database,
        # Processes take too long for features beyond the contract.
        beyond=options.backend == "sim" and not options.no_beyond,
    )

    def record(*lost: object) -> int:
        return _later("run:record_lost", chosen, *lost)()

    files = (chosen.json_path, chosen.html_path, chosen.sarif_path)
    keeps = chosen.database or chosen.shown_as != "text" or any(files)
    play = _later("run:execute", chosen, began)
    return _play_scenarios(play, chosen, record if keeps else None)


@cli.command(
    short_help="Find the contract that a synchronizer keeps.",
    epilog=examples("probe mypackage.sync:MySynchronizer --output contract.toml"),
)
@takes(settings.ProbeOptions)
def probe(options: settings.ProbeOptions) -> int:
    """Find the contract that SUBJECT keeps: try each feature alone, print a table."""
    return _play_scenarios(_later("probe:execute", options), options)


@cli.command(
    short_help="Find the waits of a synchronizer that are needed.",
    epilog=examples(
        "waits synchronizer",
        "waits ddp ddp-comm-hook --torch-lines",
        "waits mypackage.sync:MySynchronizer --html waits.html",
    ),
)
@takes(settings.WaitsOptions)
def waits(options: settings.WaitsOptions) -> int:
    """Tell of each wait of SUBJECT whether it is needed, superfluous or undecided.

    OTHERS are subjects of the same code, such as the same class with another option: a line
    is needed if any subject needs the line.
    """
    return _play_scenarios(_later("waits:execute", options), options)


@cli.command(
    short_help="Print the diagnosis of one wrong feature.",
    epilog=examples("explain report.json#wrong/1"),
)
@click.argument("place", metavar="REPORT.json#RATING/N")
def explain(place: str) -> None:
    """Print the diagnosis of a feature beyond the contract, such as report.json#wrong/1."""
    from syncverify.command.recorded import diagnosis_at

    click.echo(plain(diagnosis_at(place)))


@cli.command(
    short_help="Play one recorded violation again.",
    epilog=examples(
        "replay report.json#1",
        "replay report.json#1 mypackage.sync:MyOther",
        "replay sv2-eNot... mypackage.sync:MySynchronizer --backend gloo",
    ),
)
@takes(settings.ReplayOptions)
def replay(options: settings.ReplayOptions) -> int:
    """Play one recorded violation again: TOKEN, a file that holds one, or REPORT.json#N.

    SUBJECT is the class, the function, the training or the script. A report names it; a token
    does not.
    """
    from syncverify.command.recorded import with_recorded, words_of_program
    from syncverify.scenario.replay_token import load_program

    chosen = with_recorded(options)
    play = load_program(options.token_or_file)
    if play is None:
        return _play_scenarios(_later("replay:execute", chosen), chosen)
    # The command of the program says at its end what was reproduced.
    words = words_of_program(play, replace(options, subject=chosen.subject))
    context = click.get_current_context()
    context.meta[_EXPECTED] = play
    click.echo(f"plays again: {plain(play.line(chosen.subject))}\n")
    command = cli.commands[play.face]
    with command.make_context(play.face, words, parent=context) as own:
        code: int = command.invoke(own)
    return code


def _expected() -> ProgramPlay | None:
    """Return the play that a replay expects to show the same again; None beside a replay."""
    return click.get_current_context().meta.get(_EXPECTED)


def _play_scenarios(
    play: Callable[[], int],
    options: settings.RunOptions
    | settings.ProbeOptions
    | settings.WaitsOptions
    | settings.ReplayOptions
    | settings.ExportOptions,
    record: Callable[[str, str, list[CodeLine], int], int] | None = None,
) -> int:
    """Play in a process of its own, and lose no verdict with that process."""
    from syncverify.command.owner import after_imports, owned
    from syncverify.processes.forked_process import prepare

    has_jobs = getattr(options, "jobs", 1) > 1
    # A second play gives a verdict, and writes nothing.
    again = settings.ReplayOptions(
        token_or_file="",
        subject=options.subject,
        contract=options.contract,
        backend=getattr(options, "backend", "sim"),
        shown_as=getattr(options, "shown_as", "text"),
    )
    named = (again.subject, again.backend, str(again.contract or ""))
    preparing = partial(prepare, "syncverify.playing.workers") if has_jobs else None
    return owned(
        after_imports(play, preparing),
        lambda token: _later("replay:execute", replace(again, token_or_file=token))(),
        lambda token: replay_line(token, *named),
        record,
    )


def _play_program(play: Callable[[], int], again: Callable[[str], str]) -> int:
    """Play in a process of its own; a lost process is no verdict, for its token is not all."""
    from syncverify.command.owner import after_imports, owned

    return owned(after_imports(play), None, again)


@cli.command(
    short_help="Run any program on simulated ranks, and judge it.",
    epilog=examples(
        "simulate train.py:step --ranks 4",
        "simulate mypackage.tests:pipeline --ranks 4 --schedules all:200",
    ),
)
@takes(settings.SimulateOptions)
def simulate(options: settings.SimulateOptions) -> int:
    """Run PROGRAM, a function of its rank, on simulated ranks with streams, and judge it.

    PROGRAM is module:function or file.py:function.
    """
    play = _later("programs:simulate", options, _expected())
    return _play_program(play, lambda _: f"syncverify simulate {options.program}")


@cli.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Run a training script as torchrun does, without GPUs, and judge it.",
    epilog=examples(
        "record --nproc 4 train.py --steps 3", "record --nproc 2 -m mypackage.train"
    ),
)
@takes(settings.RecordOptions)
def record(options: settings.RecordOptions) -> int:
    """Run SCRIPT with ARGUMENTS on simulated GPUs, one process a rank, and judge it.

    The traces stay in a folder, which `syncverify judge` reads.
    """
    return _later("programs:record", options, _expected())()


@cli.command(epilog=examples("judge recorded-train", "judge recorded-train --html"))
@click.argument("folder", type=click.Path(path_type=Path))
@takes(settings.JudgeOptions)
def judge(options: settings.JudgeOptions) -> int:
    """Judge the traces of a recorded script: races, early frees, mismatches, deadlocks."""
    return _later("programs:judge", options)()


@cli.command(
    short_help="Compare a whole training step on any mesh with one rank.",
    epilog=examples(
        "parity train.py", "parity train.py --layouts dp=2,tp=2 --steps 3",
        "parity mypackage.wiring --layouts all:4",
    ),
)  # fmt: skip
@takes(settings.ParityOptions)
def parity(options: settings.ParityOptions) -> int:
    """Train as MODULE describes on simulated meshes, and compare each step with one rank.

    MODULE is a file or a module with build, parallelize, batch, and loss or step.
    """
    play = _later("programs:parity", options, _expected())
    return _play_program(play, lambda _: f"syncverify parity {options.module}")


@cli.command()
@click.argument(
    "dumps", nargs=-1, required=True, metavar="DUMP...", type=click.Path(path_type=Path)
)
@takes(settings.ReadOptions)
def read(options: settings.ReadOptions) -> int:
    """Judge a job by its flight recorder's dumps: files, or folders of files.

    Each file is the dump of one rank, as pickle or JSON, with the rank at the end of its name.
    """
    return _later("read:execute", options)()


@cli.command()
@takes(settings.ExportOptions)
@click.option(
    "--script", type=click.Path(dir_okay=False, path_type=Path), is_flag=False,
    flag_value=Path("reproduce.py"), required=True, metavar="[FILE]",
    help="Write the script here.  [reproduce.py without a name]",
)  # fmt: skip
def export(options: settings.ExportOptions) -> int:
    """Write a script that shows the wrong gradient of a token with torch and SUBJECT alone."""
    return _play_scenarios(_later("export.execution:execute", options), options)


@cli.command(
    short_help="Write an adapter for a synchronizer of yours.",
    epilog=examples("init tests/syncverify --like hooks"),
)
@click.argument("path", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--like", type=click.Choice(settings.RECIPE_NAMES), required=True,
    help="Kind of your synchronizer: a wrapper of a module, a class with hooks, a wrapper "
    "of an optimizer, a framework with state of the process.",
)  # fmt: skip
def init(path: Path, like: str) -> None:
    """Write an adapter for a synchronizer of yours, with test and contract, into PATH."""
    _later("init:execute", path, like)()


@cli.command(
    short_help="Play the bank of known defects.",
    epilog=examples("bank --examples 50", "bank --json bank.json --jobs 2"),
)
@takes(settings.BankOptions)
def bank(options: settings.BankOptions) -> int:
    """Play the bank of known defects: is each one caught, and its fixed twin left alone?"""
    play = _later("bank.execution:execute", options)
    # The token of a scenario does not tell the entry: the table above shows the last one.
    return _play_program(play, lambda it: replay_line(it, "SUBJECT", options.backend))
