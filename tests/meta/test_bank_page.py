"""The page about the bug bank agrees with its entries and figures."""

from studies.pages.bank_page import PAGE, figures, page
from syncverify.bugbank.catalogue import entries


def test_the_page_is_what_the_bank_says() -> None:
    assert PAGE.read_text() == page(), "run `make catalogue`"


def test_every_entry_has_figures() -> None:
    measured = [row["id"] for row in figures()["entries"]]
    assert measured == [entry.id for entry in entries()]
