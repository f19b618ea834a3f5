"""The page about false alarms gives the figures of the soaks."""

from studies.pages.alarms_page import FIGURES
from studies.pages.soak import lines, searches, sums


def test_a_soak_goes_on_where_it_was_cut_off() -> None:
    found = lines(FIGURES)[:1]
    (subject, seed) = found[0]["subject"], found[0]["seed"]
    left = [*searches({subject: 1000}, found, "sim")]
    whole = [(subject, n, "sim") for n in range(4)]
    assert sorted([*left, (subject, seed, "sim")]) == whole


def test_a_soak_of_another_backend_starts_anew() -> None:
    found = lines(FIGURES)[:1]
    subject = found[0]["subject"]
    left = [*searches({subject: 1000}, found, "fake")]
    assert left == [(subject, n, "fake") for n in range(4)]
    on_fake = {**found[0], "backend": "fake"}
    assert [row[:2] for row in sums([*found, on_fake])] == [
        (subject, "sim"),
        (subject, "fake"),
    ]
