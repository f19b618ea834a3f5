"""Observe each feature of each synchronizer, and write the table: `python -m studies.pages.conformance`.

A column that was observed already is left as it is, so that the command goes on where it was
cut off; it is observed again where a newer release of its package, or of torch, is installed.
Of a feature that is newer than a column, its cell alone is observed, with the same releases. A
column is left out if its package is not installed.
"""

import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from studies.harness import with_crew, with_only
from studies.pages.conformance_columns import (
    COLUMNS,
    PLAIN,
    Cell,
    Column,
    Observed,
    installed_torch,
    keep,
    observed_columns,
)
from studies.pages.conformance_page import PAGES
from studies.rows import today
from syncverify.command.process_exit import run_command
from syncverify.processes.calls import Crew

_SEED: Final = 0
_PATIENCE_SECONDS: Final = 240.0


@click.command()
@with_only([each.name for each in COLUMNS])
@click.option("--scenarios", type=click.IntRange(min=1), default=3, show_default=True,
              help="Scenarios of a feature.")  # fmt: skip
@click.option("--seconds", type=float, default=_PATIENCE_SECONDS, show_default=True,
              help="Longest time of a column.")  # fmt: skip
@with_crew
def main(only: tuple[str, ...], scenarios: int, seconds: float, crew: Crew) -> None:
    """Observe the columns that are missing, then write the pages and the README's table."""
    names = [each.name for each in missing(only or [each.name for each in COLUMNS])]
    observe = functools.partial(_probed, num_scenarios=scenarios, seconds=seconds)
    for name, seen in crew(observe, names):
        if not isinstance(seen, str):
            keep(_column(name), seen)
        click.echo(f"{name}: {seen if isinstance(seen, str) else 'observed'}", err=True)
    for each in PAGES:
        each.write()


def missing(names: Sequence[str]) -> Iterator[Column]:
    """Yield the columns among `names` that lack a cell, or the releases of today."""
    by_name = {each.column.name: each for each in observed_columns()}
    for column in COLUMNS:
        known = by_name.get(column.name)
        if column.name in names and (
            known is None or known.is_outdated() or _may_grow(known)
        ):
            yield column


def _may_grow(known: Observed) -> bool:
    return known.is_of_these_releases() and known.lacks_a_feature()


def _column(name: str) -> Column:
    return next(each for each in COLUMNS if each.name == name)


def _known(column: Column) -> list[Cell]:
    """Return what was observed of a column with the releases of this Python."""
    known = (each for each in observed_columns() if each.column == column)
    return [
        cell for each in known if each.is_of_these_releases() for cell in each.stored
    ]


def _probed(name: str, num_scenarios: int, seconds: float) -> list[Cell] | str:
    """Observe a column in a process of its own; return why it is left out, if it is."""
    column = _column(name)
    if column.installed() is None:
        return f"left out, {column.package} is not installed"
    known = _known(column)
    features = [name for cell in known for name in cell.features if name != PLAIN]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        words = [column.subject, column.backend, num_scenarios, _SEED, report]
        words += features
        command = ["studies.pages.conformance_probe", *map(str, words)]
        try:
            done = subprocess.run(
                [sys.executable, "-m", *command],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return f"left out, it takes more than {seconds:g} seconds"
        if done.returncode or not report.exists():
            return f"left out, the probe failed:\n{done.stdout}"
        seen = observed(column, json.loads(report.read_text()))
        return with_newer(known, seen)


def with_newer(known: Sequence[Cell], seen: Sequence[Cell]) -> list[Cell]:
    """Add the cells of newer features to those of a column."""
    listed = {name for cell in known for name in cell.features}
    return [*known, *(cell for cell in seen if listed.isdisjoint(cell.features))]


def observed(column: Column, report: dict[str, Any]) -> list[Cell]:
    """Take the observations of a column out of the report of a probe."""
    common: dict[str, Any] = {
        "column": column.name,
        "version": column.installed() or "",
        "torch": installed_torch(),
        "python": ".".join(map(str, sys.version_info[:2])),
        "date": today(),
    }
    plain = [
        Cell(features=(PLAIN,), word="wrong", token=each["token"], **common)
        for each in report["violations"][:1]
    ]
    return plain + [
        Cell(
            features=(entry["feature"],),
            word=entry["word"],
            token=entry.get("token", ""),
            **entry["scenarios"],
            **common,
        )
        for entry in report["beyond"]
    ]


if __name__ == "__main__":
    run_command(main, "python -m studies.pages.conformance")
