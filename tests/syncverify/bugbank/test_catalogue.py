"""The bank is complete: every entry names its mechanism, its report and its twin."""

import inspect
import re

import pytest

from syncverify.bugbank.catalogue import FAMILIES, entries, entry_of
from syncverify.bugbank.entry import Entry
from syncverify.errors import UsageError
from syncverify.judge.properties import ALL_PROPERTIES

every_entry = pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)


def test_bank_has_each_family_and_several_architectures() -> None:
    assert {entry.family for entry in entries()} == {*FAMILIES}
    architectures = {entry.twin.__mro__[-2].__name__ for entry in entries()}
    assert len(architectures) > 1


def test_no_defect_is_reported_twice() -> None:
    for field in ("name", "source", "subject"):
        values = [getattr(entry, field) for entry in entries()]
        assert [value for value in {*values} if values.count(value) > 1] == []


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


@pytest.mark.parametrize(
    ("wrong", "help_"),
    [
        ("size1-group-selfadd", "did you mean size1-group-self-add?"),
        ("??", "see docs/bug-bank.md"),
    ],
)
def test_unknown_id_is_refused(wrong: str, help_: str) -> None:
    expected = f"unknown defect {wrong!r}: {help_}"
    with pytest.raises(UsageError, match=f"^{re.escape(expected)}$"):
        entry_of(wrong)
