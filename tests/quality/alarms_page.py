"""Write the page about false alarms from what soaks and the bank played: `make catalogue`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from bank_page import figures
from soak import lines
from test_alarms import OF_DDP, OF_DEEPSPEED, PROGRAMS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "false-alarms.md"
FIGURES = DOCS / "soak.jsonl"  # of `make soak`
HEAD = """\
# False alarms

Written by `make catalogue` from `docs/soak.jsonl` and `docs/bug-bank.json`; a test compares.
A harness that cries wolf is turned off. So synchronizers that are right are searched for
violations, seed after seed, for as long as there is time: released ones, ours, and the fixed
twins of the bug bank. Whatever is found is an alarm until it is shown to be a defect.

```console
$ make soak                          # goes on where it was cut off; hours
$ syncverify bank --twin-examples 1000 --jobs 2 --json docs/bug-bank.json
```

Up to 4 simulated ranks, all that the subject's contract covers, and the schedule that a plain
run plays. What is known to be wrong in released synchronizers lies outside of their contracts
here; it is told in the [findings](findings.md).
"""
TOLD = """\
## Alarms of earlier versions

Each is a right program in which the harness saw a violation. It was mended, and the program
is a test (`tests/quality/test_alarms.py`):
"""


def page() -> str:
    """Return the page."""
    rows = [*_soaked(), _twins()]
    table = ["| subject | scenarios | alarms |", "|---|---|---|"]
    table += [f"| {name} | {played:,} | {alarms} |" for name, played, alarms in rows]
    played, alarms = (sum(row[column] for row in rows) for column in (1, 2))
    table.append(f"| all | {played:,} | {alarms} |")
    listed = [f"- `synchronizer`: {name}" for name in PROGRAMS]
    listed += [f"- `ddp`: {name}" for name in OF_DDP]
    listed += [f"- `deepspeed-zero1`: {name}" for name in OF_DEEPSPEED]
    return "\n".join([HEAD, *table, "", TOLD, *listed, ""])


def _soaked() -> Iterator[tuple[str, int, int]]:
    found = lines(FIGURES)
    for name in dict.fromkeys(line["subject"] for line in found):
        own = [line for line in found if line["subject"] == name]
        alarms = sum(len(line["violations"]) for line in own)
        yield f"`{name}`", sum(line["examples"] for line in own), alarms


def _twins() -> tuple[str, int, int]:
    """Sum up the bank's twins; one that several entries have was played for the first."""
    own = [r for r in figures()["entries"] if r["twin_played_for"] == r["id"]]
    played = sum(row["twin_examples"] for row in own)
    alarms = sum(row["alarm"] is not None for row in own)
    return f"{len(own)} twins of the [bug bank](bug-bank.md)", played, alarms


if __name__ == "__main__":
    sys.exit(PAGE.write_text(page(), encoding="utf-8") == 0)
