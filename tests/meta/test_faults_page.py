"""Each fault in docs/faults.md names a test that exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(test_\w+\.py)`: `(test_\w+)`")


def missing(page: str) -> list[str]:
    """List the tests that a page names, and that no file of that name holds."""
    return [
        f"{file}: {name}"
        for file, name in NAMED.findall(page)
        if not any(
            f"def {name}(" in path.read_text() for path in (ROOT / "tests").rglob(file)
        )
    ]


def test_tests_of_faults_exist() -> None:
    page = (ROOT / "docs" / "faults.md").read_text()
    assert NAMED.search(page)
    assert missing(page) == []


def test_a_test_that_is_missing_is_found() -> None:
    page = "`test_faults_page.py`: `test_nothing`"
    assert missing(page) == ["test_faults_page.py: test_nothing"]
