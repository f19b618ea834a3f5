"""`make release` refuses a bad version, a dirty tree and an empty changelog; fragments parse."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def git(folder: Path, *arguments: str) -> str:
    """Run git with a name and an address for commits."""
    identity = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    return subprocess.run(
        ["git", *identity, *arguments],
        cwd=folder, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a repository of one commit that holds the script and the version."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "release", tmp_path / ".ci")
    (tmp_path / "pyproject.toml").write_text('version = "1.9.0"\n')
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d" / "README.md").write_text("How to write one.\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "a project")
    return tmp_path


def release(folder: Path, *arguments: str) -> str:
    """Return the complaint of the script, which leaves the repository as it was."""
    before = git(folder, "status", "--porcelain"), git(folder, "rev-parse", "HEAD")
    done = subprocess.run(
        [folder / ".ci" / "release", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    after = git(folder, "status", "--porcelain"), git(folder, "rev-parse", "HEAD")
    assert done.returncode != 0, done.stdout
    assert before == after
    return done.stdout


@pytest.mark.parametrize(
    ("version", "complaint"),
    [
        *(
            (form, f"VERSION must look like 1.2.3, got '{form}'")
            for form in ("", "2.0", "v2.0.0", "2.0.0rc1")
        ),
        *(
            (old, f"{old} does not follow 1.9.0")
            for old in ("1.9.0", "1.8.9", "0.10.0")
        ),
        ("1.10.0", "changelog.d/ holds no fragment: nothing to release"),
    ],
)
def test_release_refuses(project: Path, version: str, complaint: str) -> None:
    assert release(project, version) == f"error: {complaint}\n"


def test_release_refuses_a_dirty_tree(project: Path) -> None:
    (project / "notes.txt").touch()
    expected = "error: the tree has changes; commit or remove them first\n"
    assert release(project, "1.10.0") == expected


def test_release_refuses_an_existing_tag(project: Path) -> None:
    git(project, "tag", "v1.10.0")
    assert release(project, "1.10.0") == "error: the tag v1.10.0 exists\n"


def test_failed_release_puts_the_tree_back(
    project: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first step after the refusals sets the version; the next one fails here."""
    failing = tmp_path_factory.mktemp("bin") / "towncrier"
    failing.write_text("#!/bin/sh\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setenv("PATH", str(failing.parent), prepend=os.pathsep)
    (project / "changelog.d" / "1.feature.md").write_text("A fact.\n")
    git(project, "add", ".")
    git(project, "commit", "-qm", "a change")
    result = release(project, "1.10.0")
    assert result.endswith("error: no release; the tree is as before\n")
    assert git(project, "tag") == ""


def test_fragments_of_the_changelog_have_names_that_a_release_takes() -> None:
    draft = [sys.executable, "-m", "towncrier", "build", "--draft", "--version=9.9.9"]
    done = subprocess.run(draft, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
