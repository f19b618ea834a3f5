"""Play random trainings in lower dtypes, right and with a factor of 2, and store the counts.

python -m studies.whole_step.mixed --first 0 --last 100
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from typing import Final

import click

from studies.rows import RESULTS, RowFile, today
from studies.whole_step.mixed_precision import (
    FACTOR,
    NothingToJudge,
    drawn,
    judged,
)
from syncverify.whole_step.causes import Scaled


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The outcome of one training.

    Attributes:
        seed: Its seed.
        is_wrong: Whether a factor is planted.
        date: Day of the play.
        drawn: Words of the training.
        is_judged: Whether there was anything to judge.
        is_right: Whether the step is called right.
        is_named: Whether the factor is named.
        values: Number of compared values.
        not_judged: Number of values that were not judged.
        cpu_seconds: CPU seconds.
    """

    seed: int
    is_wrong: bool
    date: str
    drawn: tuple[str, ...]
    is_judged: bool = True
    is_right: bool = False
    is_named: bool = False
    values: int = 0
    not_judged: int = 0
    cpu_seconds: float = 0.0


ROWS: Final = RowFile(RESULTS / "mixed_precision.jsonl", Row, ("is_wrong", "seed"))


def played(seed: int, *, is_wrong: bool) -> Row:
    """Play one training."""
    training, start = drawn(seed, is_wrong=is_wrong), time.process_time()
    result = judged(training)
    row = Row(
        seed=seed,
        is_wrong=is_wrong,
        date=today(),
        drawn=tuple(training.words),
        cpu_seconds=round(time.process_time() - start, 2),
    )
    if isinstance(result, NothingToJudge):
        return replace(row, is_judged=False)
    causes = [each.finding.cause for each in result.mistakes]
    return replace(
        row,
        is_right=result.is_right,
        is_named=any(isinstance(e, Scaled) and e.factor == FACTOR for e in causes),
        values=sum(each.num_values for each in result.plays),
        not_judged=sum(len(each.not_judged) for each in result.plays),
    )


@click.command()
@click.option("--first", default=0, show_default=True, help="First seed.")
@click.option(
    "--last", default=1000, show_default=True, help="Seed after the last one."
)
@click.option("--wrong", "is_wrong", is_flag=True, help="Plant a factor of 2.")
def main(first: int, last: int, *, is_wrong: bool) -> None:
    """Play random trainings in lower dtypes, and store a line for each."""
    warnings.simplefilter("ignore")
    for seed in range(first, last):
        row = played(seed, is_wrong=is_wrong)
        ROWS.put(row)
        click.echo(row)


if __name__ == "__main__":
    main()
