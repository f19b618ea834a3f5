"""`syncverify waits` prints a table, and writes it as JSON and as a page."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]
pytestmark = pytest.mark.slow
SMALL = "parameters=1,steps=1,micro_batches=1,words=none"


def test_each_wait_has_a_word_in_all_forms(call: Call, tmp_path: Path) -> None:
    data, page = tmp_path / "waits.json", tmp_path / "waits.html"
    files = ("--json", str(data), "--html", str(page))
    outcome = call("waits", "synchronizer", "--scope", SMALL, "--examples", "1", *files)
    assert outcome.code == 0
    *lines, verdict = outcome.out.splitlines()
    bound = "bound: all 4 scenarios of ranks=2,parameters=1"
    assert any(line.startswith(bound) for line in lines)
    found = json.loads(data.read_text())["waits"]
    assert {each["kind"] for each in found} >= {"stream_wait", "work_wait"}
    counted = [
        f"{sum(each['word'] == word for each in found)} {word}"
        for word in ("needed", "superfluous", "undecided")
    ]
    assert verdict.startswith(
        f"{len(found)} WAITS of synchronizer: {', '.join(counted)}"
    )
    assert "self.work.wait()" in page.read_text()
