"""Store golden transcripts, compare them, and show one.

    python -m studies.golden store build/before.jsonl
    python -m studies.golden compare build/before.jsonl studies/results/golden.jsonl
    python -m studies.golden show studies/results/golden.jsonl ddp/007

`store` plays programs and writes a row for each: digests of the parts of its transcript, and the names
of what was found. `compare` names each row that differs, with the first part that does; its exit code
is 1 then. `show` plays one program of a file and prints its transcript, one line an event, so that the
outputs of two commits can be diffed. Rows do not depend on the processor.
"""

import difflib
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import click
import torch

from studies.golden.programs import Transcript, programs
from studies.golden.row import Row, differences, file_of, rows_of
from syncverify.command.process_exit import run_command
from syncverify.errors import SyncverifyError, UsageError

_FILE = click.Path(path_type=Path)


@click.group()
def main() -> None:
    """Show that a change of code changes nothing that is seen."""
    warnings.simplefilter("ignore")  # of torch, about the subjects
    # Products of bfloat16 matrices are rounded as the instructions of oneDNN are.
    os.environ["ONEDNN_MAX_CPU_ISA"] = "SSE41"
    torch.set_num_threads(1)


@main.command()
@click.argument("file", type=_FILE)
@click.option("--only", multiple=True, metavar="START",
              help="Play programs whose names start so; may be repeated.")  # fmt: skip
def store(file: Path, only: tuple[str, ...]) -> None:
    """Play all programs, and write a row for each to FILE."""
    names = [name for name in programs() if name.startswith(only or "")]
    if not names:
        raise UsageError(f"no program has a name that starts with {' or '.join(only)}")
    file_of(file).write(Row.of(name, _played(name)) for name in names)
    click.echo(f"stored {_counted(names)}")


@main.command()
@click.argument("first", type=_FILE)
@click.argument("second", type=_FILE)
def compare(first: Path, second: Path) -> None:
    """Name the rows that differ in FIRST and SECOND; the exit code is 1 if any do."""
    before, after = rows_of(first), rows_of(second)
    found = [*differences(before, after)]
    for line in found:
        click.echo(line)
    click.echo(f"compared {_counted(before.keys() & after.keys())}")
    for path, alone in (
        (first, before.keys() - after),
        (second, after.keys() - before),
    ):
        if alone:
            click.echo(f"only in {path}: {_counted(alone)}")
    click.echo(f"{len(found)} rows are not equal in both" if found else "EQUAL")
    sys.exit(bool(found))


@main.command()
@click.argument("file", type=_FILE)
@click.argument("name")
def show(file: Path, name: str) -> None:
    """Play the program NAME of FILE, print its transcript, and say whether that is the stored one."""
    stored = rows_of(file)
    if name not in stored or name not in programs():
        near = difflib.get_close_matches(name, [*stored]) or [*stored][:3]
        raise UsageError(
            f"{file} has no program {name!r}; it has {', '.join(near)} ..."
        )
    transcript = _played(name)
    for part, lines in transcript.items():
        for line in lines:
            click.echo(f"{part}: {line}")
    parts = stored[name].differing(Row.of(name, transcript))
    click.echo(f"other than in {file}: {', '.join(parts) or 'nothing'}", err=True)


def _played(name: str) -> Transcript:
    """Play a program; where that is refused, the transcript is the kind of the error."""
    try:
        return programs()[name]()
    except SyncverifyError as error:
        click.echo(f"{name}: {error}", err=True)
        return {"found": [type(error).__name__]}


def _counted(names: Iterable[str]) -> str:
    """Return the number of names by the first word of each."""
    counts = Counter(name.partition("/")[0] for name in names)
    listed = ", ".join(f"{count} {part}" for part, count in sorted(counts.items()))
    return f"{counts.total()} rows: {listed}"


if __name__ == "__main__":
    run_command(main, "python -m studies.golden")
