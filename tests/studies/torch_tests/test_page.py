"""Verdicts about torch's own tests, and how many tests have each."""

from pathlib import Path

import pytest

from studies.rows import RowFile
from studies.torch_tests import results
from studies.torch_tests.playing import Result
from studies.torch_tests.results import TESTS, PlayedTest, Reason, verdict

_FAILED = Result("failed", "RuntimeError: no such thing")
_KNOWN = Reason("torch's", message="no such thing")


@pytest.mark.parametrize(
    ("simulated", "expected"),
    [
        (Result("passed", ""), "passed"),
        (Result("skipped", "Need 8 GPUs"), "skipped"),
        (_FAILED, "torch's"),
        (Result("skipped", "not simulated: no such thing"), "torch's"),
        (Result("skipped", "not simulated: rpc"), "not explained"),
        (Result("failed", "unknown"), "not explained"),
    ],
)
def test_verdict_without_gloo(simulated: Result, expected: str) -> None:
    assert verdict("Test.test_one", simulated, [_KNOWN]) == expected


@pytest.mark.parametrize(
    ("on_gloo", "expected"),
    [
        (Result("failed", "RuntimeError: other words"), "same as gloo"),
        (Result("failed", "ValueError: other"), "torch's"),
        (Result("passed", ""), "torch's"),
    ],
)
def test_results_of_gloo_are_kept_beside_simulated_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_gloo: Result, expected: str
) -> None:
    file = RowFile(tmp_path / "tests.jsonl", PlayedTest, TESTS.key)
    monkeypatch.setattr(results, "TESTS", file)
    monkeypatch.setattr(results, "reasons", lambda: [_KNOWN])
    results.keep_simulated("test_a.py", "torch v2", {"A.test_one": _FAILED})
    results.keep_gloo("test_a.py", {"A.test_one": on_gloo})
    (row,) = file.read()
    assert (row.verdict, row.gloo) == (expected, on_gloo.outcome)
    results.keep_simulated("test_a.py", "torch v2", {"A.test_one": _FAILED})
    assert file.read() == [row]


def test_most_tests_pass_at_most_five_percent_are_ours_and_each_is_explained() -> None:
    verdicts = [row.verdict for row in TESTS.read()]
    num_judged = len(verdicts) - verdicts.count("skipped")
    assert verdicts.count("passed") >= 150
    assert verdicts.count("ours") <= 0.05 * num_judged
    assert "not explained" not in verdicts
