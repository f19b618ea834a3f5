"""Verdicts about torch's own tests, and how many tests have each."""

import pytest

from studies.torch_tests import page
from studies.torch_tests.page import Reason, verdict
from studies.torch_tests.playing import Result

_FAILED = Result("failed", "RuntimeError: no such thing")


@pytest.mark.parametrize(
    ("simulated", "on_gloo", "expected"),
    [
        (Result("passed", ""), None, ("passed", "")),
        (Result("passed", ""), _FAILED, ("passed", f"on gloo: {_FAILED.message}")),
        (Result("skipped", "Need 8 GPUs"), None, ("skipped", "Need 8 GPUs")),
        (
            _FAILED,
            Result("failed", "RuntimeError: other words"),
            ("same as gloo", _FAILED.message),
        ),
        (_FAILED, Result("failed", "ValueError: other"), ("torch's", "so it is")),
        (_FAILED, Result("passed", ""), ("torch's", "so it is")),
        (_FAILED, None, ("torch's", "so it is")),
        (
            Result("skipped", "not simulated: no such thing"),
            None,
            ("torch's", "so it is"),
        ),
        (Result("failed", "unknown"), None, ("ours", "not explained: unknown")),
        (
            Result("skipped", "not simulated: rpc"),
            Result("passed", ""),
            ("ours", "not explained: not simulated: rpc"),
        ),
    ],
)
def test_verdict_compares_simulation_and_gloo(
    monkeypatch: pytest.MonkeyPatch,
    simulated: Result,
    on_gloo: Result | None,
    expected: tuple[str, str],
) -> None:
    known = Reason("torch's", "so it is", message="no such thing")
    monkeypatch.setattr(page, "reasons", lambda: [known])
    assert verdict("Test.test_one", simulated, on_gloo) == expected


def test_at_most_five_percent_are_ours() -> None:
    found = [
        each
        for ways in page.Stored.read().files.values()
        for each in page.verdicts(ways)
    ]
    ours = [test for test, each, _ in found if each == "ours"]
    played = [test for test, each, _ in found if each != "skipped"]
    assert len(ours) <= 0.05 * len(played)


def test_at_least_150_tests_pass() -> None:
    found = [
        each
        for ways in page.Stored.read().files.values()
        for each in page.verdicts(ways)
    ]
    assert sum(each == "passed" for _, each, _ in found) >= 150


def test_each_difference_has_a_reason() -> None:
    found = [
        each
        for ways in page.Stored.read().files.values()
        for each in page.verdicts(ways)
    ]
    assert [
        reason for _, _, reason in found if reason.startswith("not explained")
    ] == []
