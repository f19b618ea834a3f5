"""Public defects are planted, found, and have a twin that is played by the thousand."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from planted.bank import DEFECTS
from planted.catalogue import CATALOGUE, MEMORY, RANKS, STREAMS, Entry
from planted.divergence_bank import DIVERGENCES
from planted.side_memory import RecordsEachCopy
from planted.side_streams import NeverForks, NeverJoins
from planted.stream_bank import STREAM_DEFECTS
from planted.twins import OF_FEW_SCENARIOS, PLAIN

from syncverify.bugbank.bases.side_streams import SideStreams

PAGE = Path(__file__).parents[2] / "docs" / "known-defects.md"
FOUND: set[type[Any]] = {
    *(defect.subject for defect in (*DEFECTS, *STREAM_DEFECTS)),
    *(case[0] for case in DIVERGENCES),
    RecordsEachCopy,  # by a measure: see test_held_memory.py
}
# What test_correct_twins.py plays, which takes 1,000 scenarios of each at night.
PLAYED = {*PLAIN, *OF_FEW_SCENARIOS}


def problems(entry: Entry) -> Iterator[str]:
    told = (entry.defect.__doc__ or "").partition("Source:")[2]
    if entry.source not in re.findall(r"[\w-]+/[\w-]+#\d+", told):
        yield "its defect does not name the source"
    if entry.defect not in FOUND:
        yield "no test finds its defect"
    if entry.twin not in entry.defect.__mro__[1:]:
        yield "its twin is another synchronizer"
    if "Source:" in (entry.twin.__doc__ or ""):
        yield "its twin has a defect"
    if entry.twin not in PLAYED:
        yield "its twin is not played"


def test_every_entry_is_found_and_its_twin_is_played() -> None:
    assert [(e.name, told) for e in CATALOGUE for told in problems(e)] == []


def test_what_the_page_of_known_defects_lists_is_planted() -> None:
    sections = {
        "Order and streams": STREAMS,
        "Memory": MEMORY,
        "Ranks that differ": RANKS,
    }
    for title, entries in sections.items():
        section = PAGE.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
        listed = set(re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE))
        assert listed
        assert listed - {entry.name for entry in entries} == set()


def test_every_twin_that_a_bank_names_is_played() -> None:
    named = {defect.twin for defect in STREAM_DEFECTS} | {
        case[1] for case in DIVERGENCES
    }
    assert named - PLAYED == set()


def test_mistakes_in_the_table_are_told() -> None:
    right = Entry("x", "pytorch/pytorch#144535", NeverJoins, SideStreams)

    def told(**changes: Any) -> list[str]:
        return [*problems(replace(right, **changes))]

    class NobodyPlays(SideStreams):
        """Correct."""

    class NobodyFinds(NobodyPlays):
        """Source: pytorch/pytorch#144535."""

    assert told() == []
    assert told(source="pytorch/pytorch#1") == ["its defect does not name the source"]
    assert told(defect=NobodyFinds) == ["no test finds its defect"]
    assert told(defect=NobodyFinds, twin=NobodyPlays) == [
        "no test finds its defect", "its twin is not played",
    ]  # fmt: skip
    assert told(twin=NeverForks) == [
        "its twin is another synchronizer", "its twin has a defect",
        "its twin is not played",
    ]  # fmt: skip
