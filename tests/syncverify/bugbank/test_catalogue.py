"""The bank is complete: every entry names its mechanism, its report and its twin."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

from syncverify import bugbank
from syncverify.bugbank.catalogue import SECTIONS, entries
from syncverify.bugbank.entry import Entry
from syncverify.judge.properties import ALL_PROPERTIES

BANK = Path(bugbank.__file__).parent
every_entry = pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.id)


def test_no_defect_is_reported_twice() -> None:
    for field in ("id", "source", "subject"):
        values = [getattr(entry, field) for entry in entries()]
        assert [value for value in {*values} if values.count(value) > 1] == []


def test_every_module_of_a_section_is_an_entry() -> None:
    folders = {section.replace("-", "_") for section in SECTIONS}
    files = {
        f"{file.parent.name}.{file.stem}"
        for folder in folders
        for file in (BANK / folder).glob("*.py")
        if file.stem != "__init__"
    }
    listed = {".".join(e.subject.__module__.split(".")[-2:]) for e in entries()}
    assert files == listed


@every_entry
def test_entry_says_what_it_is(entry: Entry) -> None:
    assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", entry.source)
    assert entry.mechanism.endswith(".")
    assert entry.trigger
    assert entry.property in {each.name for each in ALL_PROPERTIES}
    module = import_module(entry.subject.__module__)
    assert module.__doc__ == f"{entry.mechanism}\n\nReported in {entry.source}.\n"


@every_entry
def test_twin_is_another_class_with_the_same_contract(entry: Entry) -> None:
    assert not issubclass(entry.twin, entry.subject)
    defect, fixed = entry.defect(), entry.fixed()
    assert fixed.factory is entry.twin
    assert fixed.capabilities == defect.capabilities


@every_entry
def test_streams_are_declared(entry: Entry) -> None:
    code = "".join(map(inspect.getsource, entry.subject.__mro__[:-1]))
    assert entry.uses_streams == ("torch.cuda" in code)
    assert entry.runs_on("gloo") != entry.uses_streams
    assert entry.runs_on("sim")
    assert entry.runs_on("streams")
