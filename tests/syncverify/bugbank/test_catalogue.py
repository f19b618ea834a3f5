"""The bank is complete: every entry names its mechanism, its report and its twin."""

import inspect
import re

import pytest

from syncverify.bugbank.catalogue import entries
from syncverify.bugbank.entry import Entry
from syncverify.judge.properties import ALL_PROPERTIES

every_entry = pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)


@every_entry
def test_entry_says_what_it_is(entry: Entry) -> None:
    assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", entry.source)
    assert entry.mechanism.endswith(".")
    assert entry.trigger
    assert entry.violates in {each.name for each in ALL_PROPERTIES}


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
