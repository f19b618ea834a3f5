"""One side of a pair, played by `syncverify run` in a process of its own."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import click

from studies.timemachine.pairs import FOLDER, Pair
from syncverify.settings import DEFAULT_RANKS

ROOT: Final = Path(__file__).parents[2]
SEED: Final = 0
_FOLDER: Final = re.compile(r"build/timemachine/(?:releases|repaired)/[^/\s]+/")
_JUDGED: Final = (0, 1)  # exit codes of `syncverify run` that are a verdict


@dataclass(frozen=True, slots=True)
class Played:
    """The report about one side.

    Attributes:
        command: Command line, without the path of the release.
        examples: Scenarios that were judged.
        seconds: Processor seconds of the search, shrinking and the start included.
        violations: Violations, each as `property (cause)`.
        summaries: One line each.
        diagnosis: Text of the first violation, as it is printed; empty if there is none.
        token: Replays the first violation.
    """

    command: str
    examples: int
    seconds: float
    violations: tuple[str, ...]
    summaries: tuple[str, ...]
    diagnosis: str
    token: str

    @classmethod
    def read(cls, entry: dict[str, Any]) -> Self:
        """Read what `dataclasses.asdict` wrote as JSON."""
        lists = {name: tuple(entry[name]) for name in ("violations", "summaries")}
        return cls(**{**entry, **lists})

    @property
    def shown_diagnosis(self) -> str:
        """Return the diagnosis with paths as they are inside of the release."""
        return _FOLDER.sub("", self.diagnosis)

    @property
    def is_silent(self) -> bool:
        """Tell whether scenarios were judged and hold."""
        return self.examples > 0 and not self.violations

    def shows(self, pair: Pair) -> bool:
        """Tell whether the first violation is the one that the pair expects."""
        if not self.violations:
            return False
        is_expected = self.violations[0] == f"{pair.violates} ({pair.cause})"
        return is_expected and pair.place in self.diagnosis


def play(
    pair: Pair, paths: Sequence[Path], *, examples: int, stops: bool = False
) -> Played:
    """Search one release for violations.

    Args:
        pair: The pair, whose subject and contract count.
        paths: Folders that come first on the path of Python's modules.
        examples: Scenarios to play.
        stops: End at the first violation.

    Returns:
        The report.

    Raises:
        ClickException: The run ended without a verdict.
    """
    arguments = [
        *_arguments(pair),
        *("--examples", str(examples), "--seed", str(SEED), "--no-beyond"),
        *(["--stop-at-first"] if stops else []),
    ]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        before = _seconds_of_children()
        done = subprocess.run(
            [sys.executable, "-m", "syncverify", "run", *arguments,
             "--no-database", "--json", str(report)],
            cwd=ROOT,
            env=_environment(paths),
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        seconds = _seconds_of_children() - before
        if done.returncode not in _JUDGED:
            # Releases print warnings of their own, hundreds of lines.
            said = re.findall(r"^.*syncverify: .*$", done.stderr, re.MULTILINE)
            raise click.ClickException(
                f"{pair.name}: no verdict from {paths}: {' '.join(said)[-4000:]}"
            )
        content = json.loads(report.read_text(encoding="utf-8"))
    command = f"syncverify run {' '.join(arguments)}"
    return _played(command, content, done.stdout, seconds)


def _arguments(pair: Pair) -> list[str]:
    contract = ["--contract", str((FOLDER / pair.contract).relative_to(ROOT))]
    return [
        pair.subject,
        *(["--backend", pair.backend] if pair.backend != "sim" else []),
        *(["--ranks", str(pair.ranks)] if pair.ranks != DEFAULT_RANKS else []),
        *(contract if pair.contract else []),
    ]


def _environment(paths: Sequence[Path]) -> dict[str, str]:
    """Return variables that put the release first, and keep warnings out of the text."""
    inherited = os.environ.get("PYTHONPATH", "")
    searched = [*map(str, paths), *([inherited] if inherited else [])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(searched),
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
    }


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _played(
    command: str, content: dict[str, Any], printed: str, seconds: float
) -> Played:
    found = content["violations"]
    block = re.search(
        r"^VIOLATION: .*?^  replay: [^\n]*$", printed, re.DOTALL | re.MULTILINE
    )
    return Played(
        command,
        content["examples"],
        round(seconds, 1),
        tuple(f"{each['property']} ({each['evidence']['cause']})" for each in found),
        tuple(each["summary"] for each in found),
        block.group() if block and found else "",
        found[0]["token"] if found else "",
    )
