"""The figures of the bug bank list its entries."""

from studies.bank_rows import BANK
from syncverify.bugbank.catalogue import entries


def test_every_entry_has_figures() -> None:
    measured = [row.id for row in BANK.read()]
    listed = sorted(entry.name for entry in entries())
    assert measured == listed, (
        "`python -m studies.pages.bank_figures` plays what is new"
    )
