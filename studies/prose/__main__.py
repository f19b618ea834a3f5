"""Count pronoun words, and fail where they are too many: `python -m studies.prose`."""

import sys
from collections.abc import Iterator
from pathlib import Path

from studies.prose.counting import (
    MOST_PER_THOUSAND,
    Count,
    comments,
    count,
    docstrings,
    pages,
)

PACKAGES = ("synchronizer", "syncverify", "strategies", "studies", "tests")


def counts(root: Path) -> Iterator[Count]:
    """Yield the counts of a checkout: docstrings and comments of each package, pages."""
    for package in PACKAGES:
        yield count(f"{package}, docstrings", docstrings(root / package))
        yield count(f"{package}, comments", comments(root / package))
    yield count("docs", pages(root / "docs"))


def main(root: Path) -> int:
    """Return the exit code, 1 where a count is over the limit, and print all counts."""
    found = list(counts(root))
    for each in found:
        over = f"  over {MOST_PER_THOUSAND:g}: name the thing"
        sys.stdout.write(
            f"{each.place:27}{each.num_pronouns:5} pronoun words in {each.num_words:6}, "
            f"{each.per_thousand:4.1f} per 1,000{'' if each.is_plain else over}\n"
        )
    return int(not all(each.is_plain for each in found))


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
