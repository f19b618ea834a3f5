"""Each document is an option of `run`, and a file that another program reads."""

import json
from pathlib import Path

import pytest

from syncverify.errors import UsageError
from syncverify.report import documents
from syncverify.report.documents import (
    check_documents,
    document_paths,
    write_documents,
)
from syncverify.report.report import Report
from syncverify.report.sarif import sarif_log
from syncverify.subjects.subject import resolve


def test_documents_with_a_file_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(documents._WRITERS, "subject", lambda report: report.subject)
    report = Report.without_coverage(resolve("synchronizer"), "sim", [], examples=1)
    sarif, other = tmp_path / "a.sarif", tmp_path / "b"
    write_documents(document_paths({"sarif_path": sarif, "subject_path": None}), report)
    assert json.loads(sarif.read_text()) == sarif_log(report)
    write_documents(document_paths({"sarif_path": None, "subject_path": other}), report)
    assert other.read_text() == "synchronizer\n"


def test_a_missing_folder_is_seen_before_the_search(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="its folder does not exist"):
        check_documents({"sarif": tmp_path / "gone" / "a.sarif"})
