"""The roster of peers, its command, and the findings that go with it."""

import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from studies.peers.__main__ import main
from studies.peers.roster import PEERS

ROOT = Path(__file__).parents[3]
SCRIPTS = sorted((ROOT / "examples" / "findings").glob("*.py"))
FINDINGS = (ROOT / "docs" / "findings.md").read_text("utf-8")


@pytest.mark.long
@pytest.mark.usefixtures("hardly_shrunk")
def test_a_violation_that_is_known_is_no_news() -> None:
    result = CliRunner().invoke(main, ["ddp-static-graph", "--examples", "6"])
    assert result.exit_code == 0, result.output
    assert "accumulation_is_local_until_reduced" in result.output


@pytest.mark.long
@pytest.mark.usefixtures("hardly_shrunk")
def test_a_violation_that_is_not_known_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(PEERS, "ddp-static-graph", PEERS["ddp"])
    result = CliRunner().invoke(main, ["ddp-static-graph", "--examples", "6"])
    assert result.exit_code == 1


def test_a_peer_that_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "d9d.internals.grad_sync", None)
    monkeypatch.delitem(sys.modules, "syncverify.subjects.d9d", raising=False)
    result = CliRunner().invoke(main, ["d9d"])
    assert result.exit_code == 0
    (line,) = (line for line in result.output.splitlines() if "skipped" in line)
    assert line.startswith("d9d: skipped: ")


def test_each_finding_has_a_script_and_each_script_a_finding() -> None:
    named = set(re.findall(r"`examples/findings/(\w+\.py)`", FINDINGS))
    assert named == {path.name for path in SCRIPTS} - {"no_cuda.py"}
