"""Try one mutant: search for violations, then run the tests, then search on.

Each stage is a new process, forked from one that has imported everything but the
synchronizer. The mutated package comes first on its path, in a temporary folder.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import NoReturn

import pytest

import syncverify
from studies.mutants.generation import PACKAGE, Mutant
from studies.mutants.results import Row
from studies.mutants.targets import TARGETS
from studies.rows import today
from syncverify.playing.sim import SimBackend
from syncverify.processes.owner_link import leave_owner
from syncverify.processes.supervised import Supervised, fork
from syncverify.scenario.settings import Settings
from syncverify.search.search import first_met
from syncverify.subjects.subject import resolve

ROOT = PACKAGE.parent
NAME = f"{syncverify.__name__}.{PACKAGE.name}"
TESTS = ROOT / "tests" / "synchronizer"
KNOWN_DEFECTS = TESTS / "known_defects"

# Worlds grow: mistakes that two ranks show are found before four are simulated.
SMALL, LARGE = 2, 4
SMALL_EXAMPLES, LARGE_EXAMPLES = 20, 40
SEED = 0
# A safety net: ranks that hang are noticed by the simulation, tests by pytest.
LIMIT_SECONDS = 400.0
TEST_LIMIT_SECONDS = 60

ANSWER = "answer.json"

# Returns the name of the check that noticed the mutant, empty for none, and the number of
# scenarios that were played.
Stage = Callable[[], tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Trial:
    """The task to try a mutant.

    Attributes:
        mutant: The mutant.
        examples: Scenarios of the longest search.
        before: `killed_by` of an earlier row; if it is a test, this test runs first.
    """

    mutant: Mutant
    examples: int
    before: str = ""


def tried(trial: Trial) -> Row:
    """Try a mutant until a scenario or a test notices it."""
    started, played, killed_by = monotonic(), 0, ""
    for stage in _stages(trial):
        with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
            _write(trial.mutant, Path(folder))
            killed_by, count = _in_process(stage, Path(folder))
        played += count
        if killed_by:
            break
    seconds = round(monotonic() - started, 2)
    return Row(trial.mutant.id, today(), killed_by, played, seconds)


def _stages(trial: Trial) -> list[Stage]:
    known = [TESTS / trial.before] if ".py::" in trial.before else []
    module = trial.mutant.path.with_suffix("").as_posix()
    tests = [*TESTS.glob("test_*.py"), *TESTS.glob("*/test_*.py")]
    files = {test.stem: test for test in tests if test.parent != KNOWN_DEFECTS}
    near = [files[f"test_{name}"] for name in TARGETS[module]]
    others = sorted({*files.values()} - {*near}, key=_cost)
    return [
        *(partial(_ask, test=test) for test in known),
        lambda: _search(SMALL, SMALL_EXAMPLES),
        lambda: _search(LARGE, LARGE_EXAMPLES),
        lambda: _test([*near, *others]),
        lambda: _search(LARGE, trial.examples),
    ]


def _cost(test: Path) -> tuple[bool, str]:
    """Sort tests that start processes to the end."""
    return "processes" in test.stem, test.name


def _write(mutant: Mutant, folder: Path) -> None:
    """Write a package `syncverify` of the mutant alone, which has the rest from here."""
    above = folder / syncverify.__name__
    package = above / PACKAGE.name
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / mutant.path).write_text(mutant.text, encoding="utf-8")
    rest = Path(syncverify.__file__)
    head = rest.read_text(encoding="utf-8")
    (above / rest.name).write_text(f"{head}\n__path__.append({str(rest.parent)!r})\n")


def _in_process(stage: Stage, folder: Path) -> tuple[str, int]:
    child = fork(lambda: _run(stage, folder), Supervised)
    assert child is not None, "a stage ends its process"
    try:
        if child.process.exit_code(LIMIT_SECONDS) is None:
            return f"no end after {LIMIT_SECONDS:g} s", 0
        answer = folder / ANSWER
        if not answer.exists():
            return f"the process ended by {child.exit_reason()}", 0
        killed_by, examples = json.loads(answer.read_text(encoding="utf-8"))
        return str(killed_by), int(examples)
    finally:
        child.end()


def _run(stage: Stage, folder: Path) -> NoReturn:
    """Run a stage in its process, write its answer, and end the process."""
    try:
        leave_owner()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # tests may send it
        assert NAME not in sys.modules, "a stage imports the mutant, nothing else"
        syncverify.__path__.insert(0, str(folder / syncverify.__name__))
        # Processes that a test starts import the mutant as well.
        os.environ["PYTHONPATH"] = os.pathsep.join((str(folder), str(ROOT)))
        output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT)
        for stream in (1, 2):
            os.dup2(output, stream)
        assert _found(NAME).startswith(str(folder)), "the mutant comes first"
        (folder / ANSWER).write_text(json.dumps(stage()), encoding="utf-8")
    finally:
        os._exit(0)


def _found(package: str) -> str:
    """Return the file that an import would execute."""
    spec = find_spec(package)
    return "" if spec is None else str(spec.origin)


def _search(ranks: int, examples: int) -> tuple[str, int]:
    """Play scenarios up to the first one that shows a violation."""
    try:
        subject = resolve(PACKAGE.name)
    except Exception as error:  # noqa: BLE001  # a mistake can make an import fail in any way
        return f"{type(error.__cause__ or error).__name__} on import", 0
    settings = Settings(ranks=ranks, examples=examples, seed=SEED)
    with closing(SimBackend()) as backend:
        first = first_met(subject, backend, settings)
    if first.found is None:
        return "", first.num_examples
    return "{} ({})".format(*first.found.violation.identity), first.num_examples


def _ask(test: Path) -> tuple[str, int]:
    """Run one test, which may no longer exist."""
    return _first_failure([test])[0], 0


def _test(files: list[Path]) -> tuple[str, int]:
    """Run tests up to the first one that fails."""
    name, code = _first_failure(files)
    return name or ("" if code == 0 else f"pytest ended with {code}"), 0


def _first_failure(tests: list[Path]) -> tuple[str, int]:
    """Return the first test that failed, empty for none, and pytest's exit code."""
    failed = FirstFailure()
    options = ["-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no"]
    # Some plugins were imported before the fork, and warnings are errors.
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    limit = f"--timeout={TEST_LIMIT_SECONDS}"
    code = pytest.main(
        [*options, limit, "--rootdir", str(ROOT), *map(str, tests)], plugins=[failed]
    )
    return failed.name, int(code)


class FirstFailure:
    """Remembers which test failed first.

    Attributes:
        name: File and test; empty if no test failed.
    """

    def __init__(self) -> None:
        self.name = ""

    def pytest_runtest_logreport(
        self, report: pytest.TestReport | pytest.CollectReport
    ) -> None:
        """Note a test that failed, in any phase."""
        if report.failed and not self.name:
            self.name = report.nodeid.removeprefix("tests/synchronizer/")

    pytest_collectreport = pytest_runtest_logreport  # a file that cannot be imported
