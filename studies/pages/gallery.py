"""The page of ten defects of ten kinds, each with the diagnosis that a user reads.

Run `python -m studies.pages.gallery` to write it. The scenarios are those of the bank's results. The pictures are
of the report pages that `syncverify replay TOKEN SUBJECT --html FILE` writes.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from studies.bank_rows import caught
from studies.documents import Document, write_part
from syncverify.faces.one_play import PlayedScenario, play
from syncverify.report.run import explanation_of
from syncverify.scenario.replay_token import decode
from syncverify.search.found_violation import FoundViolation
from syncverify.subjects.bugbank.catalogue import entry_of
from syncverify.subjects.bugbank.entry import Entry

# One defect of each kind, from numbers over calls to memory.
SHOWN: Final = {
    "A wrong factor": "avg-divides-by-numel",
    "Ranks left out": "dp-group-ignores-sequence-parallel",
    "A sum that is rounded": "low-precision-accumulator",
    "A micro-batch that is lost": "accumulator-reset-each-backward",
    "A reduction that comes too early": "sync-first-instead-of-last",
    "A bucket that is never sent": "last-bucket-not-flushed",
    "Collectives that do not match": "set-iteration-order",
    "A hang": "cross-group-collective-order",
    "A race": "final-join-missing",
    "Memory that is freed too early": "missing-record-stream",
}


def page() -> str:
    """Return the ten diagnoses."""
    return "\n".join(map(diagnosis_of, SHOWN))


def diagnosis_of(kind: str) -> str:
    """Play the defect of a kind, and return its part of the page."""
    entry = entry_of(SHOWN[kind])
    played, found = _found(entry, caught()[entry.name].token)
    return "\n".join(_part(kind, entry, played, found))


def _part(
    kind: str, entry: Entry, played: PlayedScenario, found: FoundViolation
) -> Iterator[str]:
    project, _, number = entry.source.partition("#")
    link = f"https://github.com/{project}/issues/{number}"
    smallest = replace(found, is_smallest=True)
    told = explanation_of(smallest, subject=_path(entry), backend=played.backend)
    yield f"## {kind}\n"
    yield f"{entry.mechanism} `{entry.name}`, reported in [{entry.source}]({link}).\n"
    yield f"```text\n{told.text()}\n```\n"
    yield f"![{kind}: its report page](pictures/gallery/{entry.name}.webp)\n"


def _path(entry: Entry) -> str:
    return f"{entry.subject.__module__}:{entry.subject.__qualname__}"


def _found(entry: Entry, token: str) -> tuple[PlayedScenario, FoundViolation]:
    """Play an entry's smallest scenario, and return its violation."""
    reproducer = decode(token)
    played = play(
        reproducer.scenario,
        _path(entry),
        contract=entry.defect().capabilities,
        schedule=reproducer.schedule,
    ).diagnosed()
    identity = (reproducer.property, reproducer.cause)
    (found,) = (v for v in played.violations if v.violation.identity == identity)
    return played, found


PAGE: Final = Document("docs/gallery.md", page, "defects")

if __name__ == "__main__":
    write_part(PAGE.file, PAGE.part, page())
