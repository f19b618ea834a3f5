"""Each value is likely enough to be met, and searches lack values as often as the model says."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from studies.pages.power import FIGURES, drawn_search, met, powers
from syncverify.search.missing_values import num_reserved
from syncverify.search.result import SilentProgress
from syncverify.search.search import search
from syncverify.settings import Settings
from syncverify.subjects.subject import resolve
from tests.syncverify.search.search_searches import Failing
from tests.syncverify.search.search_subjects import Naive


def figures() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(FIGURES.read_text(encoding="utf-8"))
    return stored


def test_each_value_is_met_in_2000_examples() -> None:
    stored = figures()
    weakest = [
        min(powers(stored, each, 2000).values()) for each in stored["counts"].values()
    ]
    assert min(weakest) >= 0.95


def test_a_share_of_one_in_a_thousand() -> None:
    assert met(0.001, 2000) == pytest.approx(1 - 0.999**1900)
    assert met(0.001, 2000, 0.75) == pytest.approx(1 - 0.999**1900 / 4)


@pytest.mark.slow
def test_a_drawn_search_lacks_the_values_that_a_played_one_lacks() -> None:
    subject, settings = resolve(Naive), Settings(ranks=4, examples=20, seed=3)
    backend: Any = Failing("fake", None)  # type: ignore[arg-type]
    played = search(subject, backend, settings, SilentProgress())
    before, after = drawn_search(subject.capabilities, 20, 3)
    assert after == played.coverage.missing_values()
    assert len(before) > len(after)


def lacks(stored: dict[str, Any], counted: dict[str, Any]) -> Iterator[float]:
    """Yield how far the searches are from the model, in standard deviations."""
    number = stored["searches"]
    for name, count in counted["values"].items():
        if "=" not in name or name not in counted["missing"]:
            continue
        share = 1 - met(count / stored["samples"], 200)
        error = math.sqrt(number * share * (1 - share) + 1)
        yield (counted["missing"][name] - number * share) / error


def test_searches_lack_values_as_often_as_the_model_says() -> None:
    stored = figures()
    far = [[*lacks(stored, each)] for each in stored["counts"].values()]
    assert min(map(len, far)) > 5
    assert max(abs(each) for of_contract in far for each in of_contract) < 5


def test_searches_of_2000_have_places_for_all_values_that_they_lack() -> None:
    stored = figures()
    lacking = [
        sum(
            1 - met(count / stored["samples"], 2000)
            for count in each["values"].values()
        )
        for each in stored["counts"].values()
    ]
    assert max(lacking) < num_reserved(2000) / 10
