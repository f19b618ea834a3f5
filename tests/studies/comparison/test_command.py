"""The command of the comparison: what it plays, stores and refuses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from studies.comparison.__main__ import main
from studies.comparison.methods.all_methods import METHODS

ROOT = Path(__file__).parents[3]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "studies.comparison", *arguments],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_an_unknown_defect_is_refused() -> None:
    result = CliRunner().invoke(main, ["--only", "nothing-like-it"])
    assert result.exit_code == 2
    assert "no defect has an id that starts with" in result.output


@pytest.mark.nightly
def test_one_defect_goes_through_all_methods(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    result = command("--only", "handles-never-kept", "--json", str(kept))
    assert result.returncode == 0, result.stderr
    (outcome,) = json.loads(kept.read_text("utf-8"))
    assert set(outcome["defect"]) == {method.id for method in METHODS}
    assert outcome["defect"]["cuda_sanitizer"]["alarmed"]
    assert outcome["defect"]["syncverify"]["alarmed"]
    assert not any(verdict["alarmed"] for verdict in outcome["twin"].values())


@pytest.mark.nightly
def test_what_is_known_is_not_played_again(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    verdicts = {method.id: {"alarmed": True, "words": "x"} for method in METHODS}
    outcome = {
        "id": "handles-never-kept",
        "section": "ordering",
        "is_silent": True,
        "defect": verdicts,
        "twin": verdicts,
    }
    kept.write_text(json.dumps([outcome]), encoding="utf-8")
    result = command("--only", "handles-never-kept", "--json", str(kept))
    assert (result.returncode, result.stdout) == (0, "")
