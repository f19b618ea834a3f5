"""Guilty lines of entries, by their difference from their twins."""

import linecache

from syncverify.bugbank.catalogue import entries, entry_of
from syncverify.command.bank.guilt import guilty_lines, shows_guilty_line
from syncverify.judge.evidence import Evidence
from syncverify.judge.violation import Violation
from syncverify.search.found_violation import FoundViolation
from syncverify.trace.source_lines import SourceLine
from tests.programs import one_parameter

SCENARIO = one_parameter(1, "p", (2,), cap_bytes=8)


def texts(entry_id: str) -> set[str]:
    places = guilty_lines(entry_of(entry_id))
    return {linecache.getline(path, number).strip() for path, number in places}


def test_every_entry_has_a_guilty_line() -> None:
    assert [entry.name for entry in entries() if not guilty_lines(entry)] == []


def test_what_the_twin_has_not_is_guilty() -> None:
    found = texts("double-accumulation-division")
    assert "return super().divisor(bucket) * self.required" in found


def test_where_work_lacks_the_callers_are_guilty() -> None:
    found = texts("final-join-missing")
    assert "self.join()" in found
    assert "self.comm = torch.cuda.Stream()" not in found


def test_a_report_that_names_one_shows_it() -> None:
    entry = entry_of("double-accumulation-division")
    path, number = max(guilty_lines(entry))
    for line, is_shown in ((number, True), (1, False)):
        named = (SourceLine(path, line, "divisor"),)
        violation = Violation("p", "c", "wrong", evidence=Evidence(named=named))
        found = FoundViolation(violation, SCENARIO)
        assert shows_guilty_line(entry, found) == is_shown
