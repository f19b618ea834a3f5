"""Annotations name files from the root of the checkout, escaped as GitHub reads them."""

from pathlib import Path

import pytest

from syncverify.judge.evidence import Disagreement, Event
from syncverify.judge.violation import Violation
from syncverify.report import annotations
from syncverify.report.annotations import annotation_of_job
from syncverify.report.checkout import checkout
from syncverify.report.github import workflow_command
from syncverify.settings import REPORT_FORMATS
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


def test_a_message_keeps_its_lines_and_percents(clone: Path) -> None:
    line = workflow_command("100% wrong\r\nand more", clone / "a.py", 7)
    assert (
        line == "::error file=a.py,line=7,title=syncverify::100%25 wrong%0D%0Aand more"
    )


def test_characters_that_end_a_property_are_escaped(clone: Path) -> None:
    line = workflow_command("a, b: c", clone / "50%,a:b.py")
    assert line == "::error file=50%25%2Ca%3Ab.py,line=1,title=syncverify::a, b: c"


def test_a_file_of_others_is_not_named(clone: Path) -> None:
    installed = clone / ".venv" / "lib" / "site-packages" / "torch" / "a.py"
    for file in (None, clone.parent / "a.py", installed):
        assert workflow_command("x", file, 3) == "::error title=syncverify::x"


def test_github_names_the_checkout(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(clone.parent))
    assert checkout() == clone.parent
    monkeypatch.setenv("GITHUB_WORKSPACE", str(clone / "elsewhere"))
    assert checkout() == clone


def test_without_a_checkout_the_working_directory_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    monkeypatch.chdir(tmp_path)
    assert checkout() in {tmp_path.resolve(), *tmp_path.resolve().parents}
    (tmp_path / ".git").touch()  # a worktree has a file of this name
    assert checkout() == tmp_path.resolve()


def of_job(path: str) -> str:
    line = SourceLine(path, 31, "step")
    event = Event(f"rank 0: all_reduce at {line}")
    evidence = Disagreement(named=(line,), events=(event,))
    violation = Violation("p", "c", "they disagree", evidence=evidence)
    (line_of_job,) = annotations.workflow_commands([annotation_of_job(violation)])
    return line_of_job


def test_a_violation_of_a_job_names_a_file_of_the_checkout(clone: Path) -> None:
    (clone / "job" / "train.py").touch()
    message = "p (c): they disagree%0Arank 0: all_reduce at {} in step"
    for written in ("job/train.py", "train.py"):
        found = "::error file=job/train.py,line=31,title=syncverify::"
        assert of_job(written) == found + message.format(f"{written}:31")
    assert of_job("gone.py") == "::error title=syncverify::" + message.format(
        "gone.py:31"
    )


def test_each_format_has_a_writer() -> None:
    assert annotations._WRITERS.keys() == REPORT_FORMATS.keys()
