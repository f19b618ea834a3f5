"""Store how the tests went on a pair of Python and torch, and write the page of all pairs.

    pytest --junit-xml=junit.xml -m "not long"; python -m studies.pages.versions junit.xml
    python -m studies.pages.versions

Both run in the environment of the pair; `make versions` does that for each pair. Without a file
the page alone is written. The pairs are a table of pyproject.toml.
"""

import os
import platform
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import click
import torch

from studies.documents import ROOT, Document, table
from studies.rows import RESULTS, RowFile
from syncverify.command.process_exit import run_command


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """The tests, played once on a pair of versions.

    Attributes:
        python: Version of Python, such as `3.11.7`.
        torch: Version of torch with its build, such as `2.13.0+cpu`.
        date: Day in UTC, such as `2026-11-27`.
        commit: Commit of the checkout, in 12 digits; "" where git tells none.
        tests: `quick` or `all`.
        passed: Number of tests that passed.
        failed: Number of tests that failed or raised an error.
        skipped: Number of tests that were skipped.
        seconds: Time of the whole play.
        load: Mean number of processes that wanted a core, over 15 minutes.
        num_cores: Cores of the machine.
    """

    python: str
    torch: str
    date: str
    commit: str
    tests: str
    passed: int
    failed: int
    skipped: int
    seconds: int
    load: float
    num_cores: int

    @property
    def pair(self) -> tuple[str, str]:
        """Python without its patch number, torch without its build."""
        return self.python.rpartition(".")[0], self.torch.partition("+")[0]


PLAYS: Final = RowFile(RESULTS / "versions.jsonl", Play, ("torch", "python"))
_COLUMNS: Final[dict[str, Callable[[Play], str]]] = {
    "Python": lambda play: play.python,
    "torch": lambda play: play.torch,
    "played on": lambda play: play.date,
    "commit": lambda play: play.commit or "-",
    "tests": lambda play: play.tests,
    "passed": lambda play: f"{play.passed:,}",
    "failed": lambda play: f"{play.failed:,}",
    "skipped": lambda play: f"{play.skipped:,}",
    "seconds": lambda play: f"{play.seconds:,}",
    "load": lambda play: f"{play.load} on {play.num_cores}",
}


def pairs() -> list[tuple[str, str]]:
    """Return the pairs of Python and torch that the tests are played on."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return [(python, number) for python, number in project["tool"]["versions"]["pairs"]]


def play_of(junit: Path, tests: str) -> Play:
    """Return the play of this interpreter and its torch, from pytest's file."""
    suite = next(ElementTree.parse(junit).getroot().iter("testsuite"))
    number = {
        name: int(suite.attrib[name])
        for name in ("tests", "errors", "failures", "skipped")
    }
    failed = number["errors"] + number["failures"]
    return Play(
        python=platform.python_version(),
        torch=torch.__version__,
        date=suite.attrib["timestamp"][:10],
        commit=_git("rev-parse", "--short=12", "HEAD") or "",
        tests=tests,
        passed=number["tests"] - failed - number["skipped"],
        failed=failed,
        skipped=number["skipped"],
        seconds=round(float(suite.attrib["time"])),
        load=round(os.getloadavg()[2], 1),
        num_cores=os.cpu_count() or 1,
    )


def num_commits_since(commit: str) -> int | None:
    """Return the number of commits after one; None where the history does not tell.

    A shallow clone and an archive of the sources have no history, and a commit may be gone from it.
    """
    count = _git("rev-list", "--count", f"{commit}..HEAD")
    is_whole = _git("rev-parse", "--is-shallow-repository") == "false"
    return int(count) if count is not None and is_whole else None


def _git(*arguments: str) -> str | None:
    """Return what git says of the checkout; None if it has none, or git fails."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def stored(plays: list[Play], play: Play) -> list[Play]:
    """Return the plays with a new one in the place of an earlier one of its pair."""
    return [*(each for each in plays if each.pair != play.pair), play]


def page() -> str:
    """Return the table."""
    return "\n".join(rows(PLAYS.read()))


def rows(plays: list[Play]) -> Iterator[str]:
    """Yield the table of plays, with a row for each pair."""
    by_pair = {play.pair: play for play in plays}
    return table([*_COLUMNS], (_row(pair, by_pair.get(pair)) for pair in pairs()))


def _row(pair: tuple[str, str], play: Play | None) -> list[str]:
    if play is None:
        cells = [*pair, "never"]
        return cells + ["-"] * (len(_COLUMNS) - len(cells))
    return [text_of(play) for text_of in _COLUMNS.values()]


@click.command()
@click.argument(
    "junit", required=False, type=click.Path(dir_okay=False, path_type=Path)
)
@click.option("--tests", type=click.Choice(["quick", "all"]), default="quick")
def main(junit: Path | None, tests: str) -> None:
    """Store the play of a file that pytest wrote, and write the page."""
    if junit is not None:
        PLAYS.write(stored(PLAYS.read(), play_of(junit, tests)))
    PAGE.write()


PAGE: Final = Document("docs/versions.md", page, "plays")

if __name__ == "__main__":
    run_command(main, "python -m studies.pages.versions")
