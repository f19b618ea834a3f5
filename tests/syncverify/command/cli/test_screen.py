"""The output of a run without options fits on one screen; tables are printed on request."""

import textwrap
from collections.abc import Callable
from typing import Any

import pytest

Call = Callable[..., Any]
MAX_LINES = 25
COLUMNS = 100
# More scenarios have no more lines: `test_progress.py` counts those of the progress.
SEARCH = ("--examples", "12", "--seed", "0", "--ranks", "2")
TABLES = ("not part of the verdict", "  right: ", "never together: ", "judged by")


def on_a_screen(out: str) -> list[str]:
    """Return the lines of a terminal that wraps long ones."""
    return [part for line in out.splitlines() for part in textwrap.wrap(line, COLUMNS)]


@pytest.mark.long
@pytest.mark.parametrize(
    "subject",
    [
        ["synchronizer"],
        pytest.param(["ddp"], marks=pytest.mark.nightly),
        pytest.param(["ddp", "--contract", "plain"], marks=pytest.mark.nightly),
    ],
    ids=" ".join,
)
def test_a_run_without_a_violation_fits_on_one_screen(
    call: Call, subject: list[str]
) -> None:
    outcome = call("run", *subject, *SEARCH, beyond=True)
    assert outcome.code == 0
    assert len(on_a_screen(outcome.out)) <= MAX_LINES
    assert "\nnot part of the verdict: " in outcome.out
    assert not [each for each in TABLES[1:] if each in outcome.out]


@pytest.mark.long
def test_a_class_that_always_raises_takes_few_lines(call: Call) -> None:
    outcome = call("run", "cli_subjects:FailsAtOnce", *SEARCH, beyond=True)
    assert outcome.code == 1
    assert len(on_a_screen(outcome.out)) <= MAX_LINES
    report = outcome.out.split("\nVIOLATION: ")[1].splitlines()
    assert report[0].endswith("raised ValueError in step 0, bind: never binds")
    assert report[1].startswith("  at cli_subjects.py:")
    assert report[2].startswith("  all 5 scenarios raised it at this line; not tried: ")


@pytest.mark.long
def test_tables_are_printed_on_request(call: Call) -> None:
    outcome = call("run", "synchronizer", *SEARCH, "--tables", beyond=True)
    assert [each for each in TABLES if each not in outcome.out] == []
