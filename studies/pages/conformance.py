"""Observe each feature of each synchronizer, and write the table: `python -m studies.pages.conformance`.

A column that was observed already is left as it is, so that the command goes on where it was
cut off; it is observed again where a newer release of its package, or of torch, is installed.
A column is left out if its package is not installed.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from studies.pages.conformance_columns import (
    COLUMNS,
    Cell,
    Column,
    Observed,
    installed_torch,
    observed_columns,
)
from studies.pages.conformance_page import PAGE, SCENARIOS_PAGE
from studies.pages.front_table import COUNTS, TABLE

_SEED: Final = 0
_PATIENCE_SECONDS: Final = 240.0


def main(arguments: Sequence[str]) -> None:
    """Observe the columns that are missing, then write the pages and the README's table."""
    names = [column.name for column in COLUMNS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=names, action="append", metavar="NAME")
    parser.add_argument("--scenarios", type=int, default=3, metavar="N")
    parser.add_argument("--seconds", type=float, default=_PATIENCE_SECONDS, metavar="N")
    options = parser.parse_args(arguments)
    for column in missing(options.only or names):
        sys.stderr.write(
            f"{column.name}: {_probed(column, options.scenarios, options.seconds)}\n"
        )
    for each in (PAGE, SCENARIOS_PAGE, TABLE, COUNTS):
        each.write()


def missing(names: Sequence[str]) -> Iterator[Column]:
    """Yield the columns among `names` that were not observed with the releases of today."""
    current = [each.column for each in observed_columns() if not each.is_outdated()]
    yield from (each for each in COLUMNS if each.name in names and each not in current)


def _probed(column: Column, num_scenarios: int, seconds: float) -> str:
    """Observe a column in a process of its own, and say in a word how that went."""
    if column.installed() is None:
        return f"left out, {column.package} is not installed"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        words = [column.subject, column.backend, num_scenarios, _SEED, report]
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
        observed(column, json.loads(report.read_text()), num_scenarios).write()
    return "observed"


def observed(column: Column, report: dict[str, Any], num_scenarios: int) -> Observed:
    """Take the observations of a column out of the report of a probe."""
    cells = tuple(
        Cell(
            feature=entry["feature"],
            word=entry["word"],
            counts=entry["scenarios"],
            reason=entry.get("reason", ""),
            summary=_inside_of_packages(entry.get("summary", "")),
            token=entry.get("token", ""),
        )
        for entry in report["beyond"]
    )
    plain = {
        each["token"]: _inside_of_packages(each["summary"])
        for each in report["violations"]
    }
    return Observed(
        column=column,
        version=column.installed() or "",
        torch=installed_torch(),
        seed=report["seed"],
        num_scenarios=num_scenarios,
        plain=plain,
        cells=cells,
        date=datetime.now(UTC).date().isoformat(),
        python=".".join(map(str, sys.version_info[:2])),
    )


def _inside_of_packages(summary: str) -> str:
    """Return a sentence with paths as they are inside of installed packages."""
    return re.sub(r"[^\s`]*/site-packages/", "", summary)


if __name__ == "__main__":
    main(sys.argv[1:])
