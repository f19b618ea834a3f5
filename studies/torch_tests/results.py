"""The stored results of torch's tests, simulated and on gloo: a row for each test."""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import torch

from studies.rows import RESULTS, RowFile, today
from studies.torch_tests.playing import Result, Results

REASONS: Final = Path(__file__).with_name("reasons.toml")
PASSED, SAME, SKIPPED, OURS, THEIRS, UNEXPLAINED = (
    *("passed", "same as gloo", "skipped"),
    *("ours", "torch's", "not explained"),
)
VERDICTS: Final = PASSED, SAME, SKIPPED, OURS, THEIRS, UNEXPLAINED


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedTest:
    """The result of a test.

    Attributes:
        file: Its file, below `test/distributed`.
        test: `Class.test`.
        source: Whose copy of the file was played, and its tag or commit.
        torch: Version of the installed torch.
        date: Day of the play.
        verdict: One of `VERDICTS`.
        simulated: Outcome of the simulated play: `passed`, `failed` or `skipped`.
        error: Exception of that play; empty if there is none.
        gloo: Outcome on real processes with gloo; empty if it was not played.
        gloo_error: Exception on gloo; empty if there is none.
    """

    file: str
    test: str
    source: str
    torch: str
    date: str
    verdict: str
    simulated: str
    error: str = ""
    gloo: str = ""
    gloo_error: str = ""


TESTS: Final = RowFile(RESULTS / "torch_tests.jsonl", PlayedTest, ("file", "test"))


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason of results that are neither passed nor the same as on gloo.

    Attributes:
        verdict: One of `VERDICTS`.
        test: Pattern of the names of tests.
        message: Pattern of their messages.
    """

    verdict: str
    test: str = ""
    message: str = ""

    def fits(self, test: str, result: Result) -> bool:
        """Tell whether this is the reason of a result."""
        return bool(
            re.search(self.test, test) and re.search(self.message, result.message)
        )


def reasons() -> list[Reason]:
    """Read the table of reasons."""
    return [Reason(**each) for each in tomllib.loads(REASONS.read_text())["reason"]]


def verdict(test: str, simulated: Result, known: Iterable[Reason]) -> str:
    """Return the verdict about a test that gloo has not played."""
    is_judged = simulated.message.startswith("not simulated")
    if simulated.outcome == "passed" or (
        simulated.outcome == "skipped" and not is_judged
    ):
        return simulated.outcome
    fitting = (each.verdict for each in known if each.fits(test, simulated))
    return next(fitting, UNEXPLAINED)


def keep_simulated(file: str, source: str, results: Results) -> None:
    """Store the simulated results of a file, beside those that gloo has of its tests."""
    rows, known = TESTS.read(), reasons()
    before = {row.test: row for row in rows if row.file == file}
    TESTS.write(row for row in rows if row.file != file)
    for test, result in results.items():
        row = PlayedTest(
            file=file,
            test=test,
            source=source,
            torch=torch.__version__,
            date=today(),
            verdict=verdict(test, result, known),
            simulated=result.outcome,
            error=_error(result),
        )
        gloo = before.get(test, row)
        TESTS.put(_with_gloo(row, gloo.gloo, gloo.gloo_error))


def keep_gloo(file: str, results: Results) -> None:
    """Store what gloo has of some tests of a file."""
    rows = {row.test: row for row in TESTS.read() if row.file == file}
    TESTS.put(
        *(
            _with_gloo(rows[test], result.outcome, _error(result))
            for test, result in results.items()
            if test in rows
        )
    )


def _with_gloo(row: PlayedTest, outcome: str, error: str) -> PlayedTest:
    # Another exception on gloo may be one of the CPU alone.
    is_same = row.simulated == outcome == "failed" and row.error == error
    return replace(
        row, gloo=outcome, gloo_error=error, verdict=SAME if is_same else row.verdict
    )


def _error(result: Result) -> str:
    """Return the exception of a result that failed."""
    return result.message.partition(":")[0] if result.outcome == "failed" else ""
