"""Files that commands write: pages, JSON and SARIF."""

import html
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from syncverify.scenario.replay_token import Reproducer, encode
from tests.programs import one_parameter

Call = Callable[..., Any]
FEW = ("--examples", "1", "--seed", "0", "--ranks", "2", "--no-database")
SCENARIO = one_parameter(2, "p", (2,), cap_bytes=64)
TOKEN = encode(Reproducer("gradient_equals_reference", "scaled", SCENARIO))


@pytest.mark.long
def test_run_writes_a_page(call: Call, tmp_path: Path) -> None:
    outcome = call("run", "cli_subjects:Right", *FEW, "--html", "page.html")
    assert outcome.code == 0
    text = (tmp_path / "page.html").read_text()
    assert text.startswith("<!doctype html>")
    assert "NO VIOLATION: cli_subjects:Right" in text
    assert "promised, never met" in text


@pytest.mark.slow
def test_replay_writes_a_page(call: Call, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("an earlier page")
    outcome = call("replay", TOKEN, "cli_subjects:Doubles", "--html", "page.html")
    assert outcome.code == 1
    text = page.read_text()
    assert "gradient_equals_reference" in text
    assert '"kind":"call","name":"backward"' in text
    assert "1 VIOLATION: cli_subjects:Doubles (replay of 1 scenario on sim)" in text
    # Without a search, tables of features would be empty.
    assert "never met" not in text
    assert "Coverage" not in text
    assert [each.name for each in tmp_path.iterdir() if "page" in each.name] == [
        page.name
    ]


SMALL = "parameters=1,steps=1,micro_batches=1,words=none"


@pytest.mark.slow
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
    shown = html.unescape(page.read_text())
    assert all(f"<code>{each['code']}</code>" in shown for each in found)
