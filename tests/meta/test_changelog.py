"""Changelog fragments have names and types that a release accepts."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def draft(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the next section of the changelog without writing a file."""
    return subprocess.run(
        [
            sys.executable, "-m", "towncrier", "build",
            "--draft", "--version", "9.9.9", "--dir", folder,
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Copy the configuration, without the fragments of the checkout."""
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "changelog.d").mkdir()
    shutil.copy(ROOT / "changelog.d" / "README.md", tmp_path / "changelog.d")
    return tmp_path


def test_fragments_parse() -> None:
    done = draft(ROOT)
    assert done.returncode == 0, done.stdout


def test_changelog_has_the_place_for_a_release() -> None:
    assert "<!-- towncrier release notes start -->\n" in (
        (ROOT / "CHANGELOG.md").read_text()
    )


def test_format_change_comes_first(project: Path) -> None:
    fragments = project / "changelog.d"
    (fragments / "214.feature.md").write_text("`verify` takes `faults=`.\n")
    (fragments / "+sv9.replay.md").write_text("Tokens start with `sv9-`.\n")
    shown = draft(project).stdout
    section = shown[shown.index("## 9.9.9") :].rstrip()
    assert section.splitlines()[1:] == [
        "", "### Breaks replay", "", "- Tokens start with `sv9-`.",
        "", "### Features", "", "- `verify` takes `faults=`. (#214)",
    ]  # fmt: skip
