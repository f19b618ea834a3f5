"""The figures of the bug bank list its entries, in the order of the catalogue."""

from studies.pages.bank_page import figures
from syncverify.bugbank.catalogue import entries


def test_every_entry_has_figures() -> None:
    measured = [row["id"] for row in figures()["entries"]]
    listed = [entry.name for entry in entries()]
    assert measured == listed, (
        "`python -m studies.pages.bank_figures` plays what is new"
    )
