"""Store how the tests went on a pair of Python and torch, and write the page of all pairs.

    pytest --junit-xml=junit.xml -m "not long"; python -m studies.pages.versions junit.xml
    python -m studies.pages.versions

Both run in the environment of the pair; `make versions` does that for each pair. Without a file
the page alone is written. The pairs are a table of pyproject.toml.
"""

from __future__ import annotations

import json
import os
import platform
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import click
import torch

from studies.documents import RESULTS, ROOT, Document, table
from syncverify.command.process_exit import run_command

STORED: Final = RESULTS / "versions.json"
Play = dict[str, Any]
_HEAD: Final = """\
# Versions

Written by `python -m studies.pages.versions` from stored results; a test compares. Each row is a pair of
Python and torch in the table `[tool.versions]` of `pyproject.toml`, with the last time that the
tests were played on it. `make versions` plays all pairs whose Python is installed, and CI plays
each pair for each change.

* *tests*: `quick` are those of `make test`; `all` has the searches and processes of `make long` too.
* *skipped*: tests that need a GPU or the package of another project.
* *load*: mean number of processes that wanted a core in the last quarter of an hour, and the
  cores. A load above the cores means that other work ran beside the tests, and that the seconds
  say little.
"""
_COLUMNS: Final = (
    *("Python", "torch", "played on", "tests", "passed", "failed", "skipped"),
    *("seconds", "load"),
)


def pairs() -> list[tuple[str, str]]:
    """Return the pairs of Python and torch that the tests are played on."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return [(python, torch) for python, torch in table["tool"]["versions"]["pairs"]]


def play_of(junit: Path, tests: str) -> Play:
    """Return the figures of a play of this interpreter and its torch, from pytest's file."""
    suite = next(ElementTree.parse(junit).getroot().iter("testsuite"))
    number = {
        name: int(suite.attrib[name])
        for name in ("tests", "errors", "failures", "skipped")
    }
    failed = number["errors"] + number["failures"]
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": suite.attrib["timestamp"][:10],
        "tests": tests,
        "passed": number["tests"] - failed - number["skipped"],
        "failed": failed,
        "skipped": number["skipped"],
        "seconds": round(float(suite.attrib["time"])),
        "load": f"{os.getloadavg()[2]:.1f} on {os.cpu_count()}",
    }


def is_of(play: Play, pair: tuple[str, str]) -> bool:
    """Tell whether a play was on a pair: builds and patch releases of Python are one."""
    python, number = play["python"].rpartition(".")[0], play["torch"].partition("+")[0]
    return (python, number) == pair


def stored(plays: list[Play], play: Play) -> list[Play]:
    """Return the plays with a new one in the place of an earlier one of its versions."""
    pair = play["python"].rpartition(".")[0], play["torch"].partition("+")[0]
    return [*(each for each in plays if not is_of(each, pair)), play]


def page() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *rows(json.loads(STORED.read_text("utf-8"))), ""])


def rows(plays: list[Play]) -> Iterator[str]:
    """Yield the table of plays, with a row for each pair."""
    return table(_COLUMNS, (_row(pair, plays) for pair in pairs()))


def _row(pair: tuple[str, str], plays: list[Play]) -> list[str]:
    found = next((each for each in plays if is_of(each, pair)), None)
    return [*pair, "never", *["-"] * 6] if found is None else _cells(found)


def _cells(play: Play) -> list[str]:
    names = ("python", "torch", "date", "tests", "passed", "failed", "skipped")
    numbers = (
        f"{each:,}" if isinstance(each := play[name], int) else each for name in names
    )
    return [*numbers, f"{play['seconds']:,}", play["load"]]


@click.command()
@click.argument(
    "junit", required=False, type=click.Path(dir_okay=False, path_type=Path)
)
@click.option("--tests", type=click.Choice(["quick", "all"]), default="quick")
def main(junit: Path | None, tests: str) -> None:
    """Store the play of a file that pytest wrote, and write the page."""
    if junit is not None:
        plays = stored(json.loads(STORED.read_text("utf-8")), play_of(junit, tests))
        STORED.write_text(json.dumps(plays, indent=1) + "\n", encoding="utf-8")
    PAGE.write()


PAGE: Final = Document("docs/versions.md", page)

if __name__ == "__main__":
    run_command(main, "versions.py")
