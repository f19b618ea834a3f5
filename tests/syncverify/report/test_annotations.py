"""Annotations name files from the root of the checkout, escaped as GitHub reads them."""

from pathlib import Path

import pytest

from syncverify.report.account import Account, Explanation
from syncverify.report.annotations import (
    annotations_of,
    checkout,
    workflow_command,
    workflow_commands,
)
from syncverify.trace.source_lines import SourceLine


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a checkout with a folder, and work in the folder."""
    root = tmp_path.resolve()
    (root / ".git").mkdir()
    (root / "job").mkdir()
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    monkeypatch.chdir(root / "job")
    return root


@pytest.mark.parametrize(
    ("message", "file", "expected"),
    [
        (
            "100% wrong\r\nand more", "a.py",
            "file=a.py,line=7,title=syncverify::100%25 wrong%0D%0Aand more",
        ),
        ("a, b: c", "50%,a:b.py",
         "file=50%25%2Ca%3Ab.py,line=7,title=syncverify::a, b: c"),
        # A file of others is not named.
        ("x", "../a.py", "title=syncverify::x"),
        ("x", ".venv/lib/site-packages/torch/a.py", "title=syncverify::x"),
    ],
)  # fmt: skip
def test_a_command_names_a_file_of_the_checkout(
    clone: Path, message: str, file: str, expected: str
) -> None:
    place = (clone / file).resolve()
    assert workflow_command(message, place, 7) == f"::error {expected}"


def test_the_checkout_is_the_nearest_or_that_of_github(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checkout() == clone
    (clone / "job" / ".git").touch()  # a worktree has a file of this name
    assert checkout() == clone / "job"
    monkeypatch.setenv("GITHUB_WORKSPACE", str(clone.parent))
    assert checkout() == clone.parent
    monkeypatch.setenv("GITHUB_WORKSPACE", str(clone / "elsewhere"))
    assert checkout() == clone / "job"


def of_job(path: str) -> str:
    explanation = Explanation(
        property="p", cause="c", statement="", summary="they disagree",
        lines=[SourceLine(path, 31, "step")],
    )  # fmt: skip
    account = Account(
        subject="", verdict="", is_right=False, explanations=[explanation]
    )
    (line_of_job,) = workflow_commands(annotations_of(account))
    return line_of_job


def test_a_violation_of_a_job_names_a_file_of_the_checkout(clone: Path) -> None:
    (clone / "job" / "train.py").touch()
    message = "p (c): they disagree"
    for written in ("job/train.py", "train.py"):
        found = "::error file=job/train.py,line=31,title=syncverify::"
        assert of_job(written) == found + message
    assert of_job("gone.py") == "::error title=syncverify::" + message
