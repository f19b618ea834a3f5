"""torch's own tests under simulated ranks: sources, results and verdicts."""

import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from studies.rows import RowFile
from studies.torch_tests import results
from studies.torch_tests.playing import Result, results_of
from studies.torch_tests.results import TESTS, PlayedTest, Reason, verdict
from studies.torch_tests.roster import played
from studies.torch_tests.source import Source, fetched

_FAILED = Result("failed", "RuntimeError: no such thing")
_KNOWN = Reason("torch's", message="no such thing")
_CASE = '<testcase classname="test_one.Test" name="test_sum">{}</testcase>'
_OF_RANKS = (
    '<failure message="RuntimeError: Process 2 exited with error code 10 and exception:&#10;'
    'Traceback">E    RuntimeError: Process 2 exited with error code 10 and exception:\n'
    "E    Traceback\nE      torch.own.ValueError: on it\nE    more</failure>"
)


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


def test_results_of_gloo_are_kept_beside_simulated_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RowFile(tmp_path / "tests.jsonl", PlayedTest, TESTS.key)
    monkeypatch.setattr(results, "TESTS", file)
    monkeypatch.setattr(results, "reasons", lambda: [_KNOWN])
    results.keep_simulated("test_a.py", "torch v2", {"A.test_one": _FAILED})
    same = Result("failed", "RuntimeError: other words")
    results.keep_gloo("test_a.py", {"A.test_one": same})
    (row,) = file.read()
    assert (row.verdict, row.gloo) == ("same as gloo", "failed")
    results.keep_simulated("test_a.py", "torch v2", {"A.test_one": _FAILED})
    assert file.read() == [row]


def test_most_tests_pass_at_most_five_percent_are_ours_and_each_is_explained() -> None:
    verdicts = [row.verdict for row in TESTS.read()]
    num_judged = len(verdicts) - verdicts.count("skipped")
    assert verdicts.count("passed") >= 150
    assert verdicts.count("ours") <= 0.05 * num_judged
    assert "not explained" not in verdicts


@pytest.mark.parametrize(
    ("child", "expected"),
    [
        ("", Result("passed", "")),
        ('<skipped message="Need 2 GPUs" />', Result("skipped", "Need 2 GPUs")),
        (
            '<failure message="ValueError: 3&#10;more" />',
            Result("failed", "ValueError: 3"),
        ),
        # Of ranks that raise, the first exception counts.
        (_OF_RANKS, Result("failed", "ValueError: on it")),
    ],
)
def test_a_result_has_the_first_line_of_its_reason(
    child: str, expected: Result
) -> None:
    ((name, found),) = results_of([ElementTree.fromstring(_CASE.format(child))])
    assert (name, found) == ("Test.test_sum", expected)


def test_each_stored_file_is_in_the_roster(tmp_path: Path) -> None:
    stored = {row.file for row in TESTS.read()}
    for name in (*stored, "checkpoint/test_utils.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert {*played(tmp_path)} == stored


_NAMES = ("-c", "user.name=tests", "-c", "user.email=tests@tests.tests")
_OF_TORCH = 'DEVICE = "cuda"  # an npu, and hccl\n'


def test_torchs_own_are_taken_unchanged_at_the_tag(tmp_path: Path) -> None:
    tag, repository = f"v{torch.__version__.partition('+')[0]}", tmp_path / "torch"
    file = repository / "test" / "distributed" / "test_one.py"
    file.parent.mkdir(parents=True)
    file.write_text(_OF_TORCH)
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"], ["tag", tag]):
        subprocess.run(["git", "-C", repository, *_NAMES, *command], check=True)
    file.write_text("changed")
    assert fetched(tmp_path / "tests", repository) == Source("torch", tag)
    assert (tmp_path / "tests" / "cuda" / "test_one.py").read_text() == _OF_TORCH
