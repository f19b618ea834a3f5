"""Each fault on the two pages about faults names a test that exists."""

import re
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("name", ["faults.md", "synchronizer-faults.md"])
def test_tests_of_faults_exist(name: str) -> None:
    page = (ROOT / "docs" / name).read_text()
    assert NAMED.search(page)
    assert missing(page) == []


def test_a_test_that_is_missing_is_found() -> None:
    page = "`test_faults_page.py`: `test_nothing`"
    assert missing(page) == ["test_faults_page.py: test_nothing"]
