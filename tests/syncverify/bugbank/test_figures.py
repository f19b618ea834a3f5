"""The stored figures of the bank are those of today's searches."""

from dataclasses import replace

import pytest

from studies.bank_rows import BANK, BUDGET, BankRow
from syncverify.backends.sim import SimBackend
from syncverify.bugbank.catalogue import entries, entry_of
from syncverify.bugbank.entry import Entry
from syncverify.command.bank.play import BankPlayer

ROWS = {row.id: row for row in BANK.read()}


def test_right_causes_are_those_that_entries_name() -> None:
    named = {each.name: ROWS[each.name].cause in each.causes for each in entries()}
    assert named == {each: row.is_cause_right for each, row in ROWS.items()}


def check_is_of_today(entry: Entry, stored: BankRow) -> None:
    budget = replace(BUDGET, twin_examples=0)
    row = BankPlayer(SimBackend(), budget).play(entry)
    assert row.caught is not None
    measured = (row.caught.property, row.caught.cause, row.examples)
    assert measured == (stored.property, stored.cause, stored.examples), (
        "the figures are older than the searches: delete their rows, then `make catalogue`"
    )


@pytest.mark.nightly  # the quick test replays the scenarios that these searches find
@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)
def test_a_search_meets_what_is_stored(entry: Entry) -> None:
    check_is_of_today(entry, ROWS[entry.name])


@pytest.mark.slow
def test_the_search_of_one_entry_meets_what_is_stored() -> None:
    """It takes several scenarios, so another sequence mostly meets it elsewhere."""
    entry = entry_of("flag-toggled-only-in-cooldown")
    assert ROWS[entry.name].examples > 3
    check_is_of_today(entry, ROWS[entry.name])
