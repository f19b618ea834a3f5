"""The page about the bug bank agrees with its entries and figures."""

from studies.pages.bank_page import figures
from syncverify.bugbank.catalogue import entries


def test_every_entry_has_figures() -> None:
    measured = [row["id"] for row in figures()["entries"]]
    assert measured == [entry.id for entry in entries()]
