"""Write the page about false alarms from the results of soaks and bank: `make catalogue`."""

from collections.abc import Iterator
from typing import Final

from studies.bank_rows import BANK
from studies.documents import Document, days, table
from studies.pages.soak import soaked, sums
from studies.rows import RESULTS
from tests.quality.test_alarms import OF_DDP, OF_DEEPSPEED, ON_FAKE, PROGRAMS

SOAKED: Final = soaked(RESULTS / "soak.jsonl")  # of `make soak`
_EARLIER: Final = """\
## Alarms of earlier versions

Each entry is a correct program in which the harness reported a violation. The harness was
repaired, and the program is a test (`tests/quality/test_alarms.py`):
"""


def page() -> str:
    """Return the figures and the list of the page."""
    rows = [*_soaked(), _twins()]
    rows.append(("all", "", sum(row[2] for row in rows), sum(row[3] for row in rows)))
    cells = [(name, on, f"{played:,}", alarms) for name, on, played, alarms in rows]
    counted = table(("subject", "backend", "scenarios", "alarms"), cells)
    listed = [f"- `synchronizer`: {name}" for name in PROGRAMS]
    listed += [f"- `synchronizer` on `fake`: {name}" for name in ON_FAKE]
    listed += [f"- `ddp`: {name}" for name in OF_DDP]
    listed += [f"- `deepspeed-zero1`: {name}" for name in OF_DEEPSPEED]
    played = f"Played {days([*SOAKED.read(), *BANK.read()])}."
    return "\n".join([played, "", *counted, "", _EARLIER, *listed])


def _soaked() -> Iterator[tuple[str, str, int, int]]:
    for subject, backend, played, alarms in sums(SOAKED.read()):
        yield f"`{subject}`", backend, played, alarms


def _twins() -> tuple[str, str, int, int]:
    """Sum up the bank's twins; a twin of several entries counts once, for the first one."""
    own = [row for row in BANK.read() if row.twin_played_for == row.id]
    played, alarms = sum(r.twin_examples for r in own), sum(bool(r.alarm) for r in own)
    return f"{len(own)} twins of the [bug bank](bug-bank.md)", "sim", played, alarms


PAGE: Final = Document("docs/false-alarms.md", page, "soaks")
