"""d9d's tests of its synchronizer, from a checkout of its repository, with our class.

The newest public tests make the synchronizer with a count, as d9d did before 0.24; ours takes
it either way. `EDITS` are the places in which ours differs by design; all else is played as it
is written, on a CPU.
"""

import contextlib
import io
import json
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch.multiprocessing
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException

from studies.in_d9d import cpu_copy, place
from studies.in_d9d.trial import process_group

TESTS = "d9d_test/internals/grad_sync"
# Processes of each mark of d9d's tests; "distributed" ones ask for a mesh of 8 ranks, and
# "local" ones for no process group.
NUM_RANKS = {"local": 1, "distributed": 8}


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of d9d's test files.

    Attributes:
        pattern: Regular expression of the text that changes.
        text: Its replacement.
        reason: The difference between the two synchronizers.
    """

    pattern: str
    text: str
    reason: str


EDITS = (
    Edit(
        r'ValueError, match="not ready"',
        "BucketNotReadyError",
        "a `wait()` that comes too early raises another error",
    ),
    Edit(
        r"\.grad is None(?=(?:(?!^def ).)*?\.unbind\(\))",
        ".grad.count_nonzero() == 0",
        "a gradient that is not reduced is zero, not None, between `bind()` and `unbind()`",
    ),
    Edit(
        r"(?<=^    )sync\.wait\(\)(?=(?:(?!^def ).)*?^    sync\.wait\(\))",
        "with pytest.raises(BucketNotReadyError): sync.wait()",
        "`wait()` refuses a step that is not complete for local gradients too",
    ),
)
_IMPORT = "from syncverify.synchronizer import BucketNotReadyError\n"


def edited(text: str) -> tuple[str, int]:
    """Return a test file with the edits, and the number of places that changed."""
    total = 0
    for edit in EDITS:
        text, count = re.subn(
            edit.pattern, edit.text, text, flags=re.DOTALL | re.MULTILINE
        )
        total += count
    return (_IMPORT + text if total else text), total


def play(checkout: Path, copy: Path) -> dict[str, str]:
    """Play the tests of the synchronizer.

    Args:
        checkout: A checkout of github.com/d9d-project/d9d.
        copy: Folder with the copy of d9d for a CPU.

    Returns:
        The outcome of each test: "passed", or a reason.
    """
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        shutil.copytree(checkout / "test", folder / "test")
        for path in (folder / "test").rglob("*.py"):
            cpu_copy.rewrite(path)
        for path in (folder / "test" / TESTS).glob("*.py"):
            path.write_text(edited(path.read_text())[0])
        for kind, num_ranks in NUM_RANKS.items():
            with contextlib.suppress(ProcessExitedException, ProcessRaisedException):
                arguments = (kind, copy, folder)
                torch.multiprocessing.spawn(_play_rank, arguments, num_ranks)
        return {
            name: outcome
            for kind in NUM_RANKS
            for name, outcome in _joined(kind, folder).items()
        }


class _Collector:
    """Keeps the outcome of each test."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note a report of a phase of a test; a failure stays."""
        if report.when == "call" or report.outcome != "passed":
            reason = str(report.longrepr).splitlines()[-1] if report.failed else ""
            self.outcomes[report.nodeid] = reason or report.outcome


def _play_rank(rank: int, kind: str, copy: Path, folder: Path) -> None:
    cpu_copy.install(copy)
    collector = _Collector()
    with contextlib.ExitStack() as stack:
        if kind == "distributed":
            stack.enter_context(process_group(rank, NUM_RANKS[kind], folder))
        stack.enter_context(place.ours())
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        pytest.main(_options(kind, folder), plugins=[collector])
    (folder / f"{kind} {rank}.json").write_text(json.dumps(collector.outcomes))


def _options(kind: str, folder: Path) -> list[str]:
    tests = folder / "test" / TESTS / "test_e2e.py"
    return [str(tests), "-m", kind, f"--rootdir={folder}", "-p", "no:cacheprovider"]


def _joined(kind: str, folder: Path) -> dict[str, str]:
    found = [json.loads(path.read_text()) for path in folder.glob(f"{kind} *.json")]
    if lost := NUM_RANKS[kind] - len(found):
        return {f"{TESTS} -m {kind}": f"{lost} processes did not end"}
    names = [name for name in found[0] if all(name in each for each in found)]
    return {
        name.rpartition("::")[2]: next(
            (each[name] for each in found if each[name] != "passed"), "passed"
        )
        for name in names
    }
