"""The page about torch's own tests, from the stored results and the table of reasons."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from studies.documents import Document, table
from studies.torch_tests.playing import GLOO_SECONDS, Result, Results
from studies.torch_tests.results import GLOO, SIMULATED, Stored

REASONS: Final = Path(__file__).with_name("reasons.toml")
PASSED, SKIPPED, SAME, OURS, THEIRS = (
    "passed",
    "skipped",
    "same as gloo",
    "ours",
    "torch's",
)
VERDICTS: Final = PASSED, SAME, SKIPPED, OURS, THEIRS

_HEAD: Final = """\
# torch's own tests

Written by `python -m studies.torch_tests` from stored results; a test compares. The tests are torch's
own distributed tests, played by `pytest --simulate-ranks --simulate-device=cuda`: the ranks of each
test are simulated, in one process and without a GPU, and hear that they are on CUDA. A test fails by
its own assertions, and by what the judge finds in its traces.

| verdict | meaning |
|---|---|
| passed | all assertions hold on all ranks, and the judge finds nothing |
| same as gloo | it does not pass on real processes with gloo either |
| skipped | the test skips itself, or it has no ranks and makes tensors on a GPU |
| ours | the simulated machine, or its judge, is at fault |
| torch's | the test, or its copy, does not fit the installed torch or the machine |
"""


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason of results that are neither passed nor the same as on gloo.

    Attributes:
        verdict: `ours` or `torch's`.
        said: The reason, in words.
        test: Pattern of the names of tests.
        message: Pattern of their messages.
    """

    verdict: str
    said: str
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


def verdict(test: str, simulated: Result, on_gloo: Result | None) -> tuple[str, str]:
    """Return the verdict about a test, and the reason in words."""
    if simulated.outcome == "passed":
        fails = on_gloo is not None and on_gloo.outcome == "failed"
        return PASSED, f"on gloo: {on_gloo.message}" if fails and on_gloo else ""
    if simulated.outcome == "skipped" and not simulated.message.startswith(
        "not simulated"
    ):
        return SKIPPED, simulated.message
    # Another exception on gloo may be one of the CPU alone.
    if on_gloo and on_gloo.outcome == "failed" and _kind(on_gloo) == _kind(simulated):
        return SAME, simulated.message
    for reason in reasons():
        if reason.fits(test, simulated):
            return reason.verdict, reason.said
    return OURS, f"not explained: {simulated.message}"


def _kind(result: Result) -> str:
    """Return the exception of a result."""
    return result.message.partition(":")[0]


def page() -> str:
    """Return the page."""
    stored = Stored.read()
    return (
        "\n".join([_HEAD, *_source(stored), *_files(stored), "", *_others(stored)])
        + "\n"
    )


def _source(stored: Stored) -> Iterator[str]:
    if stored.source == "torch":
        yield f"Source: torch {stored.name}, unchanged. Installed: torch {stored.torch}."
    else:
        yield (
            f"Source of these results: the copies of torch's tests that torch_npu keeps, {stored.name}, "
            "with torch's names of devices and helpers put back (`studies/torch_tests/source.py`), "
            "since torch's own files could not be fetched where these results were made. Without "
            "`--source`, the command takes torch's own, unchanged, at the tag of the installed torch. "
            f"Installed: torch {stored.torch}."
        )
    for file, commit in sorted(stored.own.items()):
        yield (
            f"`{file}` is torch's own, unchanged: at commit {commit} of pytorch/pytorch, not at the "
            "tag of the installed torch."
        )
    yield ""
    yield (
        f"The last column is gloo on real processes, with {GLOO_SECONDS} s a test: the tests that "
        "passed, of those that were played. Tests that skip themselves on the machine were not. A "
        "machine without GPUs skips all tests that need one."
    )
    yield ""


def verdicts(ways: dict[str, Results]) -> Iterator[tuple[str, str, str]]:
    """Yield name, verdict and reason of each test of a file."""
    on_gloo = ways.get(GLOO, {})
    for test, result in ways.get(SIMULATED, {}).items():
        yield test, *verdict(test, result, on_gloo.get(test))


def _files(stored: Stored) -> Iterator[str]:
    total, every_gloo = Counter[str](), Counter[str]()
    rows = list[list[object]]()
    for file, ways in sorted(stored.files.items()):
        counts = Counter(each for _, each, _ in verdicts(ways))
        total += counts
        of_gloo = Counter(each.outcome for each in ways.get(GLOO, {}).values())
        every_gloo += of_gloo
        rows.append([f"`{file}`", counts.total(), *_numbers(counts), _share(of_gloo)])
    rows.append(["all", total.total(), *_numbers(total), _share(every_gloo)])
    yield from table(("file", "tests", *VERDICTS, "gloo passes"), rows)


def _share(outcomes: Counter[str]) -> str:
    """Return how many tests of those that gloo played passed."""
    played = outcomes.total() - outcomes["skipped"]
    return f"{outcomes['passed']} of {played}" if played else "-"


def _numbers(counts: Counter[str]) -> list[int]:
    return [counts[each] for each in VERDICTS]


def _others(stored: Stored) -> Iterator[str]:
    yield "## Not passed, here or on gloo"
    yield ""
    rows = [
        (f"`{Path(file).name}`", f"`{test}`", found, reason.replace("|", "\\|"))
        for file, ways in sorted(stored.files.items())
        for test, found, reason in verdicts(ways)
        if reason and found != SKIPPED
    ]
    yield from table(("file", "test", "verdict", "reason"), rows)


PAGE: Final = Document("docs/torch-tests.md", page)
