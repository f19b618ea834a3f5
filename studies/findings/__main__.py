"""Play the scripts of findings, store the results and write their table.

    python -m studies.findings                                   # with this Python
    python -m studies.findings --python /envs/new/bin/python     # with others; may be repeated
    python -m studies.findings --only fsdp2_divides_twice        # one script

Exit codes: 0 every script ended with a verdict or lacks its package, 1 one failed, 2 bad
usage.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from studies.findings.playing import (
    FAILED,
    Environment,
    environment_of,
    played,
    scripts,
)
from studies.findings.table import PART, PLAYS, Row
from syncverify.command.process_exit import run_command

_NAMES = [script.stem for script in scripts()]


@click.command()
@click.option("--python", "pythons", multiple=True, metavar="PATH",
              help="Play with this Python and its torch.")  # fmt: skip
@click.option("--only", multiple=True, type=click.Choice(_NAMES), metavar="NAME",
              help="Play the named scripts.")  # fmt: skip
def main(pythons: tuple[str, ...], only: tuple[str, ...]) -> None:
    """Play the scripts of findings under releases of torch, and write their table."""
    failed = False
    for python in pythons or (sys.executable,):
        environment = environment_of(python)
        chosen = [each for each in scripts() if not only or each.stem in only]
        failed |= FAILED in [
            verdict for each in chosen for verdict in _play(each, environment)
        ]
    PART.write()
    sys.exit(failed)


def _play(script: Path, environment: Environment) -> tuple[str, str]:
    """Play a script, and store its result; return its verdicts without and with a patch."""
    result = played(script, environment)
    row = Row.of(environment, script, result)
    known = {(each.torch, each.script) for each in PLAYS.read()}
    # Another environment with this torch may have had the package.
    if not result.lacks_package or (row.torch, row.script) not in known:
        PLAYS.put(row)
    actual = f"{result.verdict} {result.actual}".strip()
    click.echo(f"torch {environment.torch}, {script.stem}: {actual}")
    return result.verdict, result.patched


if __name__ == "__main__":
    run_command(main, "python -m studies.findings")
