"""One side of a pair, played in a process."""

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
from typing import Any, Final

import click

from studies.timemachine.pairs import FOLDER, RUN, SIMULATE, Pair
from syncverify.scenario.settings import DEFAULT_RANKS

ROOT: Final = Path(__file__).parents[2]
SEED: Final = 0
_JUDGED: Final = (0, 1)  # exit codes that are a verdict
_JUDGES: Final = {
    RUN: ("syncverify", "run", "--no-beyond", "--no-database"),
    SIMULATE: ("studies.timemachine.drawn",),
}


@dataclass(frozen=True, slots=True)
class Played:
    """The report about one side.

    Attributes:
        examples: Scenarios that were judged.
        seconds: Processor seconds of the search, shrinking and the start included.
        violations: Violations, each as `property (cause)`.
        diagnosis: Text of the first violation, as it is printed; empty if there is none.
    """

    examples: int
    seconds: float
    violations: tuple[str, ...]
    diagnosis: str


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
    command = [
        *(sys.executable, "-m", *_JUDGES[pair.judge], *_arguments(pair)),
        *("--examples", str(examples), "--seed", str(SEED)),
        *(["--stop-at-first"] if stops else []),
    ]
    before = _seconds_of_children()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        done = subprocess.run(
            [*command, "--json", str(report)],
            cwd=ROOT,
            env=_environment(paths),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode not in _JUDGED:
            # Releases print hundreds of lines of warnings.
            error_lines = re.findall(
                r"^.*(?:syncverify|Error): .*$", done.stderr, re.MULTILINE
            )
            raise click.ClickException(
                f"{pair.name}: no verdict from {paths}: {' '.join(error_lines)[-4000:]}"
            )
        content = json.loads(report.read_text(encoding="utf-8"))
    return _played(content, done.stdout, _seconds_of_children() - before)


def _arguments(pair: Pair) -> list[str]:
    contract = ["--contract", str((FOLDER / pair.contract).relative_to(ROOT))]
    return [
        pair.subject,
        *(["--backend", pair.backend] if pair.backend != "sim" else []),
        *(["--ranks", str(pair.ranks)] if pair.ranks != DEFAULT_RANKS else []),
        *(contract if pair.contract else []),
    ]


def _seconds_of_children() -> float:
    """Return the processor time of ended processes; each process plays one side at a time."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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


def _played(content: dict[str, Any], printed: str, seconds: float) -> Played:
    found = content["violations"]
    block = re.search(
        r"^VIOLATION: .*?^  replay: [^\n]*$", printed, re.DOTALL | re.MULTILINE
    )
    return Played(
        examples=content["examples"],
        seconds=round(seconds, 1),
        violations=tuple(
            f"{each['property']} ({each['evidence']['cause']})" for each in found
        ),
        diagnosis=block.group() if block and found else "",
    )
