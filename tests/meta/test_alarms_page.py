"""The page about false alarms gives the figures of the soaks."""

from pages.alarms_page import FIGURES, PAGE, page
from pages.soak import lines, searches


def test_the_page_is_what_soaks_have_found() -> None:
    assert PAGE.read_text() == page(), "run `make catalogue`"


def test_a_soak_goes_on_where_it_was_cut_off() -> None:
    found = lines(FIGURES)[:1]
    (subject, seed) = found[0]["subject"], found[0]["seed"]
    left = [*searches({subject: 1000}, found)]
    assert sorted([*left, (subject, seed)]) == [(subject, n) for n in range(4)]
