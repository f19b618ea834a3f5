"""One file of tests, played by pytest: simulated, or on real processes with gloo."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree

SIMULATED: Final = ("--simulate-ranks", "--simulate-device=cuda", "--simulate-gpus=8")
GLOO_SECONDS: Final = 150
_TIMEOUT_SECONDS: Final = 3600
# Options of a project's own file would count, and its warnings are not ours.
_PYTEST: Final = ("-q", "-p", "no:cacheprovider", "-c", os.devnull, "-W", "ignore")

# What torch says first where ranks raised: processes, threads, and processes of a whole class.
_SAID_OF_RANKS: Final = " exited with ", "Exception in worker process"
# The exception at the end of the traceback of a rank, in what its test says; pytest cuts the
# message after some lines, and marks each line of the whole.
_OF_A_RANK: Final = re.compile(
    r"^(?:E +)?(?:[\w.]+\.)?(\w+(?:Error|Exception|Violation)\b.*)$", re.MULTILINE
)


class Result(NamedTuple):
    """What came of a test.

    Attributes:
        outcome: `passed`, `failed` or `skipped`.
        message: First line of the reason; "" where it passed.
    """

    outcome: str
    message: str


Results = dict[str, Result]


def play(
    file: Path, *options: str, per_test_seconds: int, chosen: Sequence[str] = ()
) -> Results:
    """Play a file of tests from its own folder, as torch does.

    Args:
        file: The file.
        *options: More options of pytest.
        per_test_seconds: Seconds after which a test is given up.
        chosen: Names of the tests to play; all if there are none.

    Returns:
        The results by `Class.test`; one of the whole file if it cannot be imported.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "results.xml"
        names = [
            f"{file.name}::{each.replace('.', '::', 1)}" for each in chosen if each
        ]
        wanted = names or [file.name]
        command = [sys.executable, "-m", "pytest", *_PYTEST, *wanted, *options]
        timeout = f"--timeout={per_test_seconds}"
        path = os.pathsep.join([".", os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [*command, timeout, f"--junit-xml={report}"],
            cwd=file.parent, env=environment, capture_output=True, text=True,
            timeout=_TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
        if not report.exists():
            return {"": Result("failed", done.stdout.strip().rpartition("\n")[2])}
        return dict(results_of(ElementTree.parse(report).iter("testcase")))


def results_of(cases: Iterable[ElementTree.Element]) -> Iterator[tuple[str, Result]]:
    """Yield `Class.test` and the result of each test of a report."""
    for case in cases:
        kind = case.get("classname", "").rpartition(".")[2]
        yield f"{kind}.{case.get('name')}", _result(case)


def _result(case: ElementTree.Element) -> Result:
    for child in case:
        if child.tag in {"failure", "error", "skipped"}:
            outcome = "skipped" if child.tag == "skipped" else "failed"
            return Result(outcome, _first_line(child))
    return Result("passed", "")


def _first_line(child: ElementTree.Element) -> str:
    """Return the first line of a message; of ranks that failed, that of the first of them."""
    text = f"{child.get('message') or ''}\n{child.text or ''}".strip()
    first = text.partition("\n")[0]
    raised = (
        each[1] for each in _OF_A_RANK.finditer(text) if not _is_of_ranks(each[1])
    )
    return next(raised, first) if _is_of_ranks(first) else first


def _is_of_ranks(line: str) -> bool:
    return any(phrase in line for phrase in _SAID_OF_RANKS)
