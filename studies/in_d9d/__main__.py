"""Put our synchronizer in the place of d9d's, and play d9d's trainer and tests with it.

    python -m studies.in_d9d --tests CHECKOUT

Writes studies/results/in_d9d.jsonl and docs/in-d9d.md. Exit codes: 0 all is right, 1 a gradient
is wrong or a test fails, 2 d9d or what it needs is missing, 130 interrupted.
"""

import importlib
import importlib.metadata
import platform
import sys
import tempfile
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from studies.in_d9d import cpu_copy, suite
from studies.in_d9d.document import PART, ROWS, SUITE, TRAINER, Row
from studies.in_d9d.layouts import LAYOUTS, Layout
from studies.in_d9d.outcomes import Outcome, outcome_of
from studies.in_d9d.trial import run
from studies.rows import today
from syncverify.command.process_exit import run_command
from syncverify.errors import UsageError


@click.command()
@click.option("--tests", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="A checkout of github.com/d9d-project/d9d; its tests are in no release.")  # fmt: skip
@click.option("--only", multiple=True, type=click.Choice([each.name for each in LAYOUTS]),
              help="Play these layouts, and write nothing.")  # fmt: skip
def main(tests: Path | None, only: tuple[str, ...]) -> None:
    """Play d9d's trainer on all layouts, and its tests where --tests names a checkout."""
    _refuse_missing()
    layouts = [each for each in LAYOUTS if not only or each.name in only]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        cpu_copy.make_copy(copy)
        outcomes = [*map(_shown, _played(layouts, copy))]
        results = suite.play(tests, copy) if tests else {}
    for name, result in results.items():
        click.echo(f"{name}: {result}")
    if tests and not only:
        _write(outcomes, results)
    is_right = all(each.is_right for each in outcomes)
    sys.exit(not (is_right and all(each == "passed" for each in results.values())))


def _played(layouts: Sequence[Layout], copy: Path) -> list[Outcome]:
    ordered = sorted(layouts, key=lambda each: each.num_ranks)
    return [
        outcome_of(trial)
        for _, same in groupby(ordered, key=lambda each: each.num_ranks)
        for trial in run([*same], copy)
    ]


def _shown(outcome: Outcome) -> Outcome:
    click.echo(
        f"{outcome.layout}: {outcome.gradients} gradients on {outcome.ranks} ranks, "
        f"{outcome.wrong} wrong with ours, {outcome.wrong_of_d9d} with d9d's"
        + (f"; {outcome.error}" if outcome.error else "")
    )
    return outcome


def _refuse_missing() -> None:
    try:
        importlib.import_module("d9d.loop.run")
    except ImportError as error:
        raise UsageError(
            f"d9d's trainer cannot be imported ({error}); `make in-d9d` installs it"
        ) from error


def _write(outcomes: Sequence[Outcome], results: dict[str, str]) -> None:
    when: dict[str, Any] = {
        "date": today(),
        "d9d": importlib.metadata.version("d9d"),
        "torch": importlib.metadata.version("torch"),
        "python": platform.python_version(),
    }
    layouts = (
        Row(
            part=TRAINER,
            name=each.layout,
            outcome="error" if each.error else "ended",
            ranks=each.ranks,
            compared_with=each.compared_with,
            gradients=each.gradients,
            wrong=each.wrong,
            wrong_of_d9d=each.wrong_of_d9d,
            **when,
        )
        for each in outcomes
    )
    tests = (
        Row(part=SUITE, name=name, outcome=outcome, **when)
        for name, outcome in results.items()
    )
    ROWS.write([*layouts, *tests])
    PART.write()


if __name__ == "__main__":
    run_command(main, "python -m studies.in_d9d")
