"""Play the red team and score it.

    python -m studies.redteam --examples 500 --jobs 2
    python -m studies.redteam --only averages-at-bind

Prints a line a program and the sums; `--write` also writes the page docs/how-we-know.md and its
figures. The exit code is 1 if a wrong program was missed or a right one accused.
"""

from __future__ import annotations

import functools
import sys

import click

from studies.crews import with_crew
from studies.redteam.document import write
from studies.redteam.program import programs
from studies.redteam.scoring import Score, score_of
from syncverify.command.process_exit import run_command
from syncverify.processes.calls import Crew

_NAMES = [program.name for program in programs()]


@click.command()
@click.option("--examples", type=click.IntRange(min=1), default=500, show_default=True)
@click.option("--only", multiple=True, type=click.Choice(_NAMES), metavar="NAME",
              help="Play the named programs alone.")  # fmt: skip
@click.option("--write", "writes", is_flag=True, help="Write the page and its figures.")
@with_crew
def main(examples: int, only: tuple[str, ...], crew: Crew, *, writes: bool) -> None:
    """Play the programs, and print who is caught, missed, accused or silent."""
    names = [name for name in _NAMES if not only or name in only]
    scores: list[Score] = []
    play = functools.partial(score_of, examples=examples)
    for _, score in crew(play, names):
        scores.append(score)
        click.echo(_line(score))
    scores.sort(key=lambda score: names.index(score.name))
    click.echo(_sums(scores))
    if writes:
        write(scores, examples)
    sys.exit(any(score.verdict in {"missed", "accused"} for score in scores))


def _line(score: Score) -> str:
    verdict = f"{score.name}: {score.verdict} after {score.examples}"
    found = ": ".join(filter(None, (score.identity, score.message)))
    return f"{verdict}: {found}" if found else verdict


def _sums(scores: list[Score]) -> str:
    """Count the verdicts."""
    counted = {
        verdict: sum(score.verdict == verdict for score in scores)
        for verdict in ("caught", "missed", "silent", "accused", "not judged")
    }
    return ", ".join(f"{verdict} {count}" for verdict, count in counted.items())


if __name__ == "__main__":
    run_command(main, "python -m studies.redteam")
