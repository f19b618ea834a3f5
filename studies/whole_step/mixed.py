"""Play random trainings in lower dtypes, right and with a factor of 2, and store the counts.

python -m studies.whole_step.mixed --first 0 --last 100
"""

from __future__ import annotations

import json
import time
import warnings
from typing import Any, Final

import click

from studies.documents import RESULTS
from studies.whole_step.mixed_precision import (
    FACTOR,
    Drawn,
    NothingToJudge,
    drawn,
    judged,
)
from syncverify.whole_step.causes import Scaled

RESULTS_FILE: Final = RESULTS / "mixed_precision.jsonl"


def outcome(training: Drawn) -> dict[str, Any]:
    """Return what came of one training, as plain values."""
    start = time.process_time()
    result = judged(training)
    seconds = round(time.process_time() - start, 2)
    if isinstance(result, NothingToJudge):
        return {"refused": result.why, "cpu_seconds": seconds}
    causes = [each.finding.cause for each in result.mistakes]
    return {
        "right": result.is_right,
        "named": any(isinstance(e, Scaled) and e.factor == FACTOR for e in causes),
        "values": sum(each.num_values for each in result.plays),
        "not_judged": sum(len(each.not_judged) for each in result.plays),
        "cpu_seconds": seconds,
    }


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
        training = drawn(seed, is_wrong=is_wrong)
        found = {"seed": seed, "wrong": is_wrong, "drawn": [*training.words]}
        line = json.dumps({**found, **outcome(training)})
        with RESULTS_FILE.open("a") as file:
            file.write(line + "\n")
        click.echo(line)


if __name__ == "__main__":
    main()
