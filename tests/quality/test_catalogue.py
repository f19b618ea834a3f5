"""Public defects are found, and have a twin that is played by the thousand."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from syncverify.bugbank.bases.careful import Careful
from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.catalogue import entries, entry_of
from tests.quality.planted.bank import DEFECTS
from tests.quality.planted.divergence_bank import DIVERGENCES
from tests.quality.planted.lifecycle_bank import LIFECYCLE_DEFECTS
from tests.quality.planted.side_memory import HoldsUntilJoined, RecordsEachCopy
from tests.quality.planted.stream_bank import STREAM_DEFECTS
from tests.quality.planted.twins import OF_FEW_SCENARIOS, PLAIN

PAGE = Path(__file__).parents[2] / "docs" / "known-defects.md"
# Sections of the page that correspond to sections of the bank.
SECTIONS = ("Order and streams", "Memory", "Ranks that differ")
ENTRIES = [
    entry for entry in entries() if entry.family in {"ordering", "memory", "cross-rank"}
]
# Found by a measure, and so not in the bank: see test_held_memory.py.
MEASURED = {"record-stream-overallocation": (RecordsEachCopy, HoldsUntilJoined)}
FOUND: set[type[Any]] = {
    *(each.subject for each in (*DEFECTS, *STREAM_DEFECTS, *LIFECYCLE_DEFECTS)),
    *(each.subject for each in DIVERGENCES),
    RecordsEachCopy,
}
# Subjects of test_correct_twins.py and test_lifecycle_defects.py: 1,000 scenarios at night.
PLAYED = {*PLAIN, *OF_FEW_SCENARIOS, Careful}
WRONG = {entry.subject for entry in entries()}
NOT_FOUND = (
    "no test finds the defect: add a row to a list of tests/quality/planted/bank.py, "
    "stream_bank.py, lifecycle_bank.py or divergence_bank.py"
)
NOT_PLAYED = (
    "its twin is not played: add it to a list of tests/quality/planted/twins.py"
)


def problems(defect: type[Any], twin: type[Any]) -> Iterator[str]:
    if defect not in FOUND:
        yield NOT_FOUND
    if twin not in defect.__mro__[1:]:
        yield "its twin is another synchronizer"
    if twin in WRONG:
        yield "its twin has a defect"
    if twin not in PLAYED:
        yield NOT_PLAYED


def test_every_entry_is_found_and_its_twin_is_played() -> None:
    pairs = {entry.name: (entry.subject, entry.twin) for entry in ENTRIES} | MEASURED
    assert ENTRIES
    assert [
        (name, problem) for name in pairs for problem in problems(*pairs[name])
    ] == []


def test_what_the_page_of_known_defects_lists_is_planted() -> None:
    for title in SECTIONS:
        section = PAGE.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
        listed = set(re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE))
        assert listed
        assert listed - {entry.name for entry in ENTRIES} - {*MEASURED} == set()


def test_every_twin_that_a_bank_names_is_played() -> None:
    named = {each.twin for each in (*DEFECTS, *STREAM_DEFECTS, *DIVERGENCES)}
    assert named - PLAYED == set()


def test_mistakes_in_the_table_are_reported() -> None:
    right = entry_of("final-join-missing")
    other = entry_of("comm-stream-not-after-producer")

    class NobodyPlays(SideStreams):
        """Right."""

    class NobodyFinds(NobodyPlays):
        """Wrong."""

    assert [*problems(right.subject, right.twin)] == []
    assert [*problems(NobodyFinds, SideStreams)] == [NOT_FOUND]
    assert [*problems(NobodyFinds, NobodyPlays)] == [NOT_FOUND, NOT_PLAYED]
    assert [*problems(right.subject, other.subject)] == [
        "its twin is another synchronizer",
        "its twin has a defect",
        NOT_PLAYED,
    ]
