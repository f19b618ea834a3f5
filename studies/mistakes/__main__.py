"""Play the mistakes, and write the page.

    python -m studies.mistakes --jobs 2
    python -m studies.mistakes --only counter-not-reset

Prints a line a mistake and the figures. Named mistakes are printed with their reports. The
exit code is 1 if a mistake is not found, a certain cause is wrong, or a fix is none.
"""

import functools
import sys

import click

from studies.harness import play_all, with_crew, with_only
from studies.mistakes.corpus import mistakes
from studies.mistakes.scoring import (
    EXAMPLES,
    MISTAKES,
    PAGE,
    Row,
    right_programs,
    scored,
    summary,
)
from syncverify.command.process_exit import run_command
from syncverify.processes.calls import Crew

_NAMES = [mistake.name for mistake in mistakes()]


@click.command()
@click.option("--examples", type=click.IntRange(min=1), default=EXAMPLES, show_default=True,
              help="Scenarios; figures are written for the default alone.")  # fmt: skip
@with_only(_NAMES)
@with_crew
def main(only: tuple[str, ...], crew: Crew, examples: int) -> None:
    """Play one-line mistakes, and print what the harness says about each."""
    right, is_stored = right_programs(), examples == EXAMPLES
    play = functools.partial(scored, right=right, examples=examples, tells=bool(only))
    rows = play_all(
        crew, play, only or _NAMES, line=_line, rows=MISTAKES if is_stored else None
    )
    if is_stored:
        PAGE.write()
    click.echo("\n".join(summary(rows)))
    sys.exit(any(row.is_bad for row in rows))


def _line(row: Row) -> str:
    if not row.identities:
        return f"{row.name}: NOT FOUND"
    right = "right" if row.is_right else "WRONG CAUSE"
    wrong = f", WRONG CERTAIN {', '.join(row.wrong_certain)}"
    fixes = ", ".join(f"fix {verdict}" for verdict in row.fixes) or "no fix"
    identities = ", ".join(row.identities)
    return f"{row.name}: {right}{wrong if row.wrong_certain else ''}, {fixes}: {identities}"


if __name__ == "__main__":
    run_command(main, "python -m studies.mistakes")
