"""The page about power is up to date, and each value is likely enough to be met."""

import json

import pytest

from studies.pages.power import FIGURES, met


def test_each_value_is_met_in_2000_examples() -> None:
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    shares = {
        f"{topic}={value}": count / figures["samples"]
        for topic, counted in figures["counts"].items()
        for value, count in counted["values"].items()
    }
    assert shares
    assert [name for name, share in shares.items() if met(share, 2000) < 0.95] == []


def test_a_share_of_one_in_a_thousand() -> None:
    assert met(0.001, 2000) == pytest.approx(0.8648, abs=1e-4)
