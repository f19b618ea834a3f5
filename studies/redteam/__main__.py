"""Play the red team and score it.

    python -m studies.redteam --jobs 2
    python -m studies.redteam --only averages-at-bind

Prints a line a program and the sums. The exit code is 1 if a wrong program was missed or a
right one accused.
"""

import functools
import sys
from collections import Counter
from typing import Final

import click

from studies.harness import play_all, with_crew, with_only
from studies.redteam.programs import programs
from studies.redteam.scoring import BAD, PAGE, PROGRAMS, VERDICTS, Row, score_of
from syncverify.command.process_exit import run_command
from syncverify.processes.calls import Crew

EXAMPLES: Final = 500
_NAMES: Final = [program.name for program in programs()]


@click.command()
@click.option("--examples", type=click.IntRange(min=1), default=EXAMPLES, show_default=True,
              help="Scenarios; scores are stored for the default alone.")  # fmt: skip
@with_only(_NAMES)
@with_crew
def main(examples: int, only: tuple[str, ...], crew: Crew) -> None:
    """Play the programs, and print who is caught, missed, accused or silent."""
    play = functools.partial(score_of, limit=examples)
    is_stored = examples == EXAMPLES
    rows = play_all(
        crew, play, only or _NAMES, line=_line, rows=PROGRAMS if is_stored else None
    )
    counts = Counter(row.verdict for row in rows)
    click.echo(", ".join(f"{each} {counts[each]}" for each in VERDICTS))
    if is_stored:
        PROGRAMS.write(row for row in PROGRAMS.read() if row.name in _NAMES)
        PAGE.write()
    sys.exit(any(row.verdict in BAD for row in rows))


def _line(row: Row) -> str:
    verdict = f"{row.name}: {row.verdict} after {row.examples}"
    return f"{verdict}: {row.identity}" if row.identity else verdict


if __name__ == "__main__":
    run_command(main, "python -m studies.redteam")
