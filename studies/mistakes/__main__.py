"""Play the mistakes, and write the page.

    python -m studies.mistakes --jobs 2
    python -m studies.mistakes --only counter-not-reset

Prints a line a mistake and the figures. Named mistakes are printed with their reports. The
exit code is 1 if a mistake is not found, a certain cause is wrong, or a fix is none.
"""

from __future__ import annotations

import functools
import sys

import click

from studies.crews import with_crew
from studies.mistakes.corpus import mistakes
from studies.mistakes.document import MISTAKES, PAGE, Row, summary
from studies.mistakes.scoring import EXAMPLES, Score, right_programs, scored
from syncverify.command.process_exit import run_command
from syncverify.processes.calls import Crew

_NAMES = [mistake.name for mistake in mistakes()]


@click.command()
@click.option("--only", multiple=True, type=click.Choice(_NAMES), metavar="NAME",
              help="Play the named mistakes alone, and print their reports.")  # fmt: skip
@click.option("--examples", type=click.IntRange(min=1), default=EXAMPLES, show_default=True,
              help="Scenarios; figures are written for the default alone.")  # fmt: skip
@with_crew
def main(only: tuple[str, ...], crew: Crew, examples: int) -> None:
    """Play one-line mistakes, and print what the harness says about each."""
    rows: list[Row] = []
    names = [name for name in _NAMES if not only or name in only]
    play = functools.partial(scored, right=right_programs(), examples=examples)
    for _, score in crew(play, names):
        rows.append(Row.of(score))
        if only:
            click.echo("\n\n".join([*(each.text for each in score.told), ""]))
        click.echo(_line(score))
        if examples == EXAMPLES:
            MISTAKES.put(rows[-1])
            PAGE.write()
    click.echo("\n".join(summary(rows)))
    sys.exit(any(row.is_bad for row in rows))


def _line(score: Score) -> str:
    if not score.is_found:
        return f"{score.name}: NOT FOUND"
    right = "right" if score.is_right else "WRONG CAUSE"
    wrong = f", WRONG CERTAIN {', '.join(score.wrong_certain)}"
    fixes = ", ".join(f"fix {fix.verdict}" for fix in score.fixes) or "no fix"
    identities = ", ".join(each.identity for each in score.told)
    return f"{score.name}: {right}{wrong if score.wrong_certain else ''}, {fixes}: {identities}"


if __name__ == "__main__":
    run_command(main, "python -m studies.mistakes")
