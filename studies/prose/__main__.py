"""Count places that a reader has to read twice, and fail where they are too many.

`python -m studies.prose` prints a line for each package and kind of prose.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from studies.prose.counting import (
    RULES,
    Count,
    comments,
    count,
    docstrings,
    front_pages,
    pages,
)

PACKAGES = ("synchronizer", "syncverify", "strategies", "studies", "tests")


def counts(root: Path) -> Iterator[Count]:
    """Yield the counts of a checkout: docstrings and comments of each package, pages."""
    for package in PACKAGES:
        yield count(f"{package}, docstrings", docstrings(root / package))
        yield count(f"{package}, comments", comments(root / package))
    yield count("docs", pages(root / "docs"))
    yield count("README and others", front_pages(root))


def line(found: Count) -> str:
    """Return the line of a count, with the remedy of each rule that is broken."""
    shares = ", ".join(f"{found.per_thousand(rule):4.2f} {rule.name}" for rule in RULES)
    over = "".join(
        f"  over {rule.most:g} {rule.name}: {rule.remedy}" for rule in found.broken()
    )
    return f"{found.place:26}{found.num_words:6} words; per 1,000: {shares}{over}\n"


def main(root: Path) -> int:
    """Return the exit code, 1 where a count is over the limit, and print all counts."""
    found = list(counts(root))
    sys.stdout.writelines(map(line, found))
    return int(any(each.broken() for each in found))


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
