"""One side of a pair, played in a process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from studies.timemachine.pairs import FOLDER, RUN, SIMULATE, Pair
from syncverify.settings import DEFAULT_RANKS

ROOT: Final = Path(__file__).parents[2]
SEED: Final = 0
_JUDGED: Final = (0, 1)  # exit codes that are a verdict


@dataclass(frozen=True, slots=True)
class _Judge:
    """A command that plays scenarios.

    Attributes:
        starts: Its words.
        stores_nothing: Its options beside those of a pair.
    """

    starts: tuple[str, ...]
    stores_nothing: tuple[str, ...] = ()


_JUDGES: Final = {
    RUN: _Judge(
        (sys.executable, "-m", "syncverify", "run"),
        ("--no-database",),
    ),
    SIMULATE: _Judge(
        (sys.executable, "-m", "studies.timemachine.drawn"),
    ),
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
    judge = _JUDGES[pair.judge]
    arguments = [
        *_arguments(pair),
        *("--examples", str(examples), "--seed", str(SEED)),
        *(["--stop-at-first"] if stops else []),
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report = folder / "report.json"
        command = [*judge.starts, *arguments, *judge.stores_nothing]
        ended = _run([*command, "--json", str(report)], _environment(paths), folder)
        if ended.code not in _JUDGED:
            # Releases print hundreds of lines of warnings.
            error_lines = re.findall(
                r"^.*(?:syncverify|Error): .*$", ended.stderr, re.MULTILINE
            )
            raise click.ClickException(
                f"{pair.name}: no verdict from {paths}: {' '.join(error_lines)[-4000:]}"
            )
        content = json.loads(report.read_text(encoding="utf-8"))
    return _played(content, ended.stdout, ended.seconds)


def _arguments(pair: Pair) -> list[str]:
    contract = ["--contract", str((FOLDER / pair.contract).relative_to(ROOT))]
    beyond = ["--no-beyond"] if pair.judge == RUN else []
    return [
        pair.subject,
        *beyond,
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


@dataclass(frozen=True, slots=True)
class _Ended:
    """A process that ended.

    Attributes:
        code: Exit code.
        stdout: Text of stdout.
        stderr: Text of stderr.
        seconds: Processor time of the process and its children.
    """

    code: int
    stdout: str
    stderr: str
    seconds: float


def _run(command: Sequence[str], environment: dict[str, str], folder: Path) -> _Ended:
    """Run a command to its end; others may run beside it, so the usage is that of this one."""
    output, errors = folder / "stdout", folder / "stderr"
    with output.open("w") as out, errors.open("w") as err:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=out, stderr=err
        )
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return _Ended(
        process.returncode,
        output.read_text("utf-8", errors="replace"),
        errors.read_text("utf-8", errors="replace"),
        used.ru_utime + used.ru_stime,
    )


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
