"""Play the scripts of findings, store the results and write their table.

    python -m studies.findings                                   # with this Python
    python -m studies.findings --python /envs/new/bin/python     # with others; may be repeated
    python -m studies.findings --only fsdp2_divides_twice        # one script

Exit codes: 0 every script ended with a verdict or lacks its package, 1 one failed, 2 bad
usage.
"""

import functools
import sys
from pathlib import Path

import click

from studies.findings.playing import (
    FAILED,
    PART,
    PLAYS,
    Environment,
    Row,
    environment_of,
    played,
    scripts,
)
from studies.harness import play_all, with_only
from syncverify.command.process_exit import run_command
from syncverify.processes.calls import run_here

_NAMES = [script.stem for script in scripts()]


@click.command()
@click.option("--python", "pythons", multiple=True, metavar="PATH",
              help="Play with this Python and its torch.")  # fmt: skip
@with_only(_NAMES)
def main(pythons: tuple[str, ...], only: tuple[str, ...]) -> None:
    """Play the scripts of findings under releases of torch, and write their table."""
    rows = list[Row]()
    chosen = [each for each in scripts() if each.stem in (only or _NAMES)]
    for python in pythons or (sys.executable,):
        play = functools.partial(_played, environment=environment_of(python))
        rows += play_all(run_here, play, chosen, line=_line, rows=PLAYS)
    PART.write()
    sys.exit(any(FAILED in {row.verdict, row.patched} for row in rows))


def _played(script: Path, environment: Environment) -> Row | str:
    """Play a script; return the package that is missing, if a stored result has to stay."""
    row = played(script, environment)
    known = {(each.torch, each.script) for each in PLAYS.read()}
    # Another environment with this torch may have had the package.
    stays = row.lacks_package and (row.torch, row.script) in known
    return row.verdict if stays else row


def _line(row: Row) -> str:
    patched = f"; with the patch: {row.patched}" if row.patched else ""
    return f"torch {row.torch}, {row.script}: {row.verdict}{patched}"


if __name__ == "__main__":
    run_command(main, "python -m studies.findings")
