"""The score of a program: caught, missed, accused or silent, and the table of all."""

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import Final

import torch

from studies.documents import Document, days, table
from studies.redteam.programs import program_named
from studies.rows import RESULTS, RowFile, today
from syncverify.errors import SyncverifyError
from syncverify.playing.program.modules.layers import provide_layers
from syncverify.playing.program.warnings_once import show_warnings_once
from syncverify.playing.sim import SimBackend
from syncverify.scenario.settings import Settings
from syncverify.search.search import first_met

SEED: Final = 0
# Verdicts about a wrong program, and about a right one; a refused run is not judged.
VERDICTS: Final = "caught", "missed", "silent", "accused", "not judged"
BAD: Final = "missed", "accused"


@dataclass(frozen=True, slots=True)
class Row:
    """The score of a program.

    Attributes:
        name: Name of the program.
        date: Day of the search.
        limit: Most scenarios of the search.
        examples: Scenarios up to the verdict.
        verdict: One of `VERDICTS`.
        identity: Property and cause of the first violation, or the reason of a refusal.
    """

    name: str
    date: str
    limit: int
    examples: int
    verdict: str
    identity: str = ""


PROGRAMS: Final = RowFile(RESULTS / "redteam.jsonl", Row, ("name",))


def score_of(name: str, limit: int) -> Row:
    """Search for the first violation of a program, without shrinking."""
    program = program_named(name)
    subject = program.defect()
    provide_layers(subject.capabilities)
    show_warnings_once()
    torch.set_num_threads(1)
    settings = Settings(ranks=program.max_ranks, examples=limit, seed=SEED)
    try:
        first = first_met(subject, SimBackend(), settings)
    except SyncverifyError as error:
        return Row(name, today(), limit, 0, "not judged", type(error).__name__)
    silent, loud = ("missed", "caught") if program.is_wrong else ("silent", "accused")
    played = first.num_examples
    if first.found is None:
        return Row(name, today(), limit, played, silent)
    identity = "{} ({})".format(*first.found.violation.identity)
    return Row(name, today(), limit, played, loud, identity)


def page() -> str:
    """Return the number of programs by verdict, and the names of those without a right one."""
    rows = PROGRAMS.read()
    counts = Counter(row.verdict for row in rows)
    figures = [counts[verdict] for verdict in VERDICTS]
    cells = [("wrong", *figures[:2], "", "", ""), ("right", "", "", *figures[2:])]
    until = median(row.examples for row in rows if row.verdict == "caught")
    extent = (
        f"At most {max(row.limit for row in rows)} scenarios a program, on `sim`, seed 0, played "
        f"{days(rows)}. A wrong program is caught after {until:g} scenarios in the median."
    )
    listed = [row for row in rows if row.verdict in {*BAD, "not judged"}]
    named = ", ".join(f"`{row.name}` is {row.verdict}" for row in listed) + "."
    return "\n".join([extent, "", *table(("programs", *VERDICTS), cells), "", named])


PAGE: Final = Document("docs/how-we-know.md", page, "programs")
