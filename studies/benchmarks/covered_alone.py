"""The lines of code that one test alone covers: what is lost where that test goes.

A plugin of pytest that tells coverage which test runs, and a command that reads the outcome:

    coverage run -m pytest -p studies.benchmarks.covered_alone -n auto -m "not long"
    coverage combine -q
    python -m studies.benchmarks.covered_alone .coverage > covered_alone.tsv

The table has a line for each test, the fewest lines first: number of lines that it alone
covers, number of lines that it covers, and the test. Lines that a child process runs belong to
no test.
"""

import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Name the test to coverage while it runs; between tests no test is named."""
    measuring = coverage.Coverage.current()
    if measuring is None:
        raise pytest.UsageError("covered_alone needs: coverage run -m pytest ...")
    measuring.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        measuring.switch_context("")


def covered(path: Path) -> tuple[Counter[str], Counter[str]]:
    """Read a file of coverage.

    Args:
        path: The combined file.

    Returns:
        Number of lines that a test alone covers, and number of lines that it covers; by test.
    """
    data = coverage.CoverageData(str(path))
    data.read()
    alone, together = Counter[str](), Counter[str]()
    for file in data.measured_files():
        for tests in data.contexts_by_lineno(file).values():
            together.update(test for test in tests if test)
            if len(tests) == 1 and tests[0]:
                alone[tests[0]] += 1
    return alone, together


def main(path: Path) -> None:
    """Print the table."""
    alone, together = covered(path)
    for test in sorted(together, key=lambda each: (alone[each], -together[each])):
        sys.stdout.write(f"{alone[test]}\t{together[test]}\t{test}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
