"""The scripts of findings show what their page says, and a proposed patch repairs it."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from studies.findings import __main__ as command
from studies.findings.patching import PatchError, patched_folder
from studies.findings.playing import (
    FAILED,
    NOT_SHOWN,
    PLAYS,
    SHOWN,
    Environment,
    Row,
    environment_of,
    played,
    scripts,
)

OF_TORCH = [each for each in scripts() if each.stem.startswith(("ddp", "fsdp2"))]
REPAIRED_IN = {"fsdp2_deferred_misplaced": Version("2.15")}


@pytest.fixture(scope="module")
def here() -> Environment:
    return environment_of(sys.executable)


def test_every_script_was_played_under_some_torch() -> None:
    listed = scripts()
    assert listed
    for script in listed:
        verdicts = {row.verdict for row in PLAYS.read() if row.script == script.stem}
        assert SHOWN in verdicts, script
        assert FAILED not in verdicts, script


@pytest.mark.parametrize(
    ("before", "verdict", "is_stored"),
    [
        ((SHOWN,), "needs d9d", False),
        ((SHOWN,), NOT_SHOWN, True),
        ((), "needs d9d", True),
    ],
)
def test_a_stored_result_stays_where_its_package_is_missing(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    here: Environment,
    before: tuple[str, ...],
    verdict: str,
    is_stored: bool,  # noqa: FBT001  # a column of the table above
) -> None:
    plays = replace(PLAYS, path=tmp_path / "findings.jsonl")
    row = Row(
        torch="2.13.0", script="d9d_a", date="2026-01-01", python="3.11", verdict=""
    )
    plays.write(replace(row, verdict=each) for each in before)
    monkeypatch.setattr(command, "PLAYS", plays)
    found = replace(row, verdict=verdict)
    monkeypatch.setattr(command, "played", lambda *_: found)
    assert command._played(Path("d9d_a.py"), here) == (found if is_stored else verdict)


@pytest.mark.long
@pytest.mark.parametrize(
    "script",
    [
        *OF_TORCH[:2],
        *(pytest.param(each, marks=pytest.mark.nightly) for each in OF_TORCH[2:]),
    ],
    ids=lambda script: script.stem,
)
def test_a_script_shows_its_finding(script: Path, here: Environment) -> None:
    repaired_in = REPAIRED_IN.get(script.stem)
    is_repaired = repaired_in is not None and Version(here.torch) >= repaired_in
    found = played(script, here)
    assert found.verdict == (NOT_SHOWN if is_repaired else SHOWN)
    assert found.patched in {"", NOT_SHOWN}


def test_a_patch_that_does_not_fit_is_reported(tmp_path: Path) -> None:
    file = "torch/version.py"
    patch = tmp_path / "wrong.patch"
    patch.write_text(
        f"--- a/{file}\n+++ b/{file}\n@@ -1,1 +1,1 @@\n-no such line\n+x\n"
    )
    packages = Path(sys.modules["torch"].__file__ or "").parents[1]
    before = (packages / file).read_text()
    with pytest.raises(
        PatchError, match=r"^wrong.patch does not fit: error: patch failed"
    ):
        patched_folder(patch, packages, tmp_path / "copy")
    assert (packages / file).read_text() == before


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("print('actual:   2, no error')", SHOWN),
        ("print('actual:   4'); raise SystemExit(1)", NOT_SHOWN),
        ("print('not shown'); raise SystemExit(1)", NOT_SHOWN),
        ("1 / 0", FAILED),
        ("print('actual:   4'); raise SystemExit(2)", FAILED),
    ],
)
def test_the_verdict_is_of_the_script(
    text: str, verdict: str, here: Environment, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(text)
    assert played(script, here).verdict == verdict
