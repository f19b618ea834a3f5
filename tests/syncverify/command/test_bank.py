"""One entry of the bank played: caught or missed, its twin silent or not, and its guilty lines."""

import linecache
from dataclasses import replace
from typing import Any

import pytest

from syncverify.command.bank.execution import line_of, summary, table
from syncverify.command.bank.play import (
    BankPlayer,
    Caught,
    EntryResult,
    guilty_lines,
    shows_guilty_line,
)
from syncverify.judge.evidence import Evidence
from syncverify.judge.violation import Violation
from syncverify.playing.sim import SimBackend
from syncverify.scenario.replay_token import decode
from syncverify.scenario.settings import BankOptions
from syncverify.search.found_violation import FoundViolation
from syncverify.search.search import FirstViolation, find_first
from syncverify.subjects.bugbank.catalogue import entries, entry_of
from syncverify.subjects.bugbank.entry import Entry
from syncverify.subjects.subject import Subject
from syncverify.trace.source_lines import SourceLine
from tests.programs import one_parameter

QUICK = entry_of("size1-group-self-add")
BUDGET = BankOptions(examples=5, twin_examples=3, seed=0)


def played(entry: Entry) -> EntryResult:
    return BankPlayer(SimBackend(), BUDGET).play(entry)


@pytest.mark.long
def test_contract_names_the_features_of_the_smallest_scenario() -> None:
    caught = played(QUICK)
    plain = decode(caught.caught.token).scenario
    for events, contract in (
        (("wait_twice",), "event=wait_twice"),
        (("tail", "wait_twice", "tail"), "event=tail, event=wait_twice"),
    ):
        scenario = replace(plain, events=events, accumulations=(1,) * len(events))
        brief = Caught.of(FoundViolation(Violation("name", "cause", ""), scenario))
        assert brief.contract == contract
        [cells] = _rows([replace(caught, caught=brief)])
        assert cells[2:4] == ("name", contract)
    [cells] = _rows([replace(caught, caught=None)])
    assert cells[2:5] == ("MISSED", "", "sim")


def _rows(results: list[EntryResult]) -> list[tuple[object, ...]]:
    return [*zip(*(column.cells for column in table(results).columns), strict=True)]


@pytest.mark.slow
def test_twin_with_a_defect_is_an_alarm() -> None:
    row = played(replace(QUICK, twin=QUICK.subject))
    assert row.alarm is not None
    assert not row.is_right
    assert "FALSE ALARM about its twin: unreduced_stay_local (scaled)" in line_of(row)


def test_another_cause_than_the_entry_names_is_wrong() -> None:
    player = BankPlayer(SimBackend(), replace(BUDGET, twin_examples=0))
    row = player.play(replace(QUICK, causes=("stale",)))
    assert row.caught is not None
    assert not row.is_cause_right


@pytest.mark.long
def test_a_twin_of_two_entries_is_searched_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[str] = []

    def search(subject: Subject, *plan: Any) -> FirstViolation:
        searched.append(subject.name)
        return find_first(subject, *plan)

    monkeypatch.setattr("syncverify.command.bank.play.find_first", search)
    player = BankPlayer(SimBackend(), BUDGET)
    others = entry_of("size1-branch-overwrites")
    rows = [player.play(QUICK), player.play(replace(others, twin=QUICK.twin))]
    assert searched == [QUICK.name, f"{QUICK.name} (twin)", others.name]
    assert [row.twin_played_for for row in rows] == [QUICK.name, QUICK.name]
    *_, last = summary(rows)
    assert last == "twins silent: 2 of 2 (100.0 %), over 3 scenarios in all"


SCENARIO = one_parameter(1, "p", (2,), cap_bytes=8)


def texts(entry_id: str) -> set[str]:
    places = guilty_lines(entry_of(entry_id))
    return {linecache.getline(path, number).strip() for path, number in places}


@pytest.mark.long
def test_every_entry_has_a_guilty_line() -> None:
    assert [entry.name for entry in entries() if not guilty_lines(entry)] == []


@pytest.mark.parametrize(
    ("entry_id", "guilty", "innocent"),
    [
        # What the twin has not; and where work lacks, its callers.
        (
            "double-accumulation-division",
            "return super().divisor(bucket) * self.required",
            "",
        ),
        ("final-join-missing", "self.join()", "self.comm = torch.cuda.Stream()"),
    ],
)
def test_guilty_lines_are_the_difference_from_the_twin(
    entry_id: str, guilty: str, innocent: str
) -> None:
    assert guilty in texts(entry_id)
    assert innocent not in texts(entry_id)


def test_a_report_that_names_one_shows_it() -> None:
    entry = entry_of("double-accumulation-division")
    path, number = max(guilty_lines(entry))
    for line, is_shown in ((number, True), (1, False)):
        named = (SourceLine(path, line, "divisor"),)
        violation = Violation("p", "c", "wrong", evidence=Evidence(named=named))
        found = FoundViolation(violation, SCENARIO)
        assert shows_guilty_line(entry, found) == is_shown
