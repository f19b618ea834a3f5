"""The page about false alarms gives the figures of the soaks."""

from studies.pages.alarms_page import FIGURES
from studies.pages.soak import Campaign, campaigns, lines, sums


def test_a_soak_goes_on_where_it_was_cut_off() -> None:
    (line,) = found = lines(FIGURES)[:1]
    subject, played = line["subject"], line["examples"]
    (left,) = campaigns({subject: played + 1000}, found, "sim")
    assert left == Campaign(subject, "sim", line["seed"] + 1, 1000)
    assert [*campaigns({subject: played}, found, "sim")] == []


def test_a_soak_of_another_backend_starts_anew() -> None:
    found = lines(FIGURES)[:1]
    subject = found[0]["subject"]
    left = [*campaigns({subject: 1000}, found, "fake")]
    assert left == [Campaign(subject, "fake", 0, 1000)]
    on_fake = {**found[0], "backend": "fake"}
    assert [row[:2] for row in sums([*found, on_fake])] == [
        (subject, "sim"),
        (subject, "fake"),
    ]
