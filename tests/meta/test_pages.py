"""Each page that a tool writes is what the tool writes today."""

from pathlib import Path

import pytest

from studies import documents
from studies.documents import Document, table, with_part
from studies.pages import __main__ as of_studies
from syncverify.errors import UsageError
from tests.pages import __main__ as of_tests

PAGES = (*of_studies.PAGES, *of_tests.PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.path} {page.part}")
def test_the_page_is_what_its_tool_writes(page: Document) -> None:
    assert page.file.read_text("utf-8") == page.written(), "run `make catalogue`"


START, END = "<!-- rows -->", "<!-- end of rows -->"


def test_a_part_is_written_between_its_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{START}\nold\n{END}\nafter\n")
    rows = "\n".join(table(("a", "b"), [(1, 2)]))
    Document("page.md", lambda: rows, "rows").write()
    assert page.read_text() == (
        f"before\n{START}\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n{END}\nafter\n"
    )
    Document("page.md", lambda: "one line", "rows").write()
    assert page.read_text() == f"before\n{START}one line{END}\nafter\n"


@pytest.mark.parametrize("text", ["none", f"{END}{START}", START])
def test_a_page_without_both_marks_is_refused(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(UsageError, match="lacks the lines"):
        with_part(page, "rows", "new")
