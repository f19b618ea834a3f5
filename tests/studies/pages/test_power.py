"""Each value is likely enough to be met, and searches lack values as often as the model says."""

import math
from collections.abc import Iterator
from typing import Any

import pytest

from studies.pages.power import CONTRACTS, VALUES, drawn_search, met
from syncverify.search.missing_values import num_reserved
from syncverify.search.result import SilentProgress
from syncverify.search.search import search
from syncverify.settings import Settings
from syncverify.subjects.subject import resolve
from tests.syncverify.search.search_searches import Failing
from tests.syncverify.search.search_subjects import Naive

ROWS = VALUES.read()


def test_each_value_is_met_in_2000_examples() -> None:
    assert {row.contract for row in ROWS} == {*CONTRACTS}
    assert min(row.power(2000) for row in ROWS) >= 0.95


@pytest.mark.slow
def test_a_drawn_search_lacks_the_values_that_a_played_one_lacks() -> None:
    subject, settings = resolve(Naive), Settings(ranks=4, examples=20, seed=3)
    backend: Any = Failing("fake", None)  # type: ignore[arg-type]
    played = search(subject, backend, settings, SilentProgress())
    before, after = drawn_search(subject.capabilities, 20, 3)
    assert after == played.coverage.missing_values()
    assert len(before) > len(after)


def lacks(contract: str) -> Iterator[float]:
    """Yield how far the searches are from the model, in standard deviations."""
    for row in ROWS:
        if row.contract != contract or "=" not in row.value or not row.missing:
            continue
        share = 1 - met(row.count / row.samples, 200)
        error = math.sqrt(row.searches * share * (1 - share) + 1)
        yield (row.missing - row.searches * share) / error


@pytest.mark.parametrize("contract", CONTRACTS)
def test_searches_lack_values_as_often_as_the_model_says(contract: str) -> None:
    far = [*lacks(contract)]
    assert len(far) > 5
    assert max(map(abs, far)) < 5


@pytest.mark.parametrize("contract", CONTRACTS)
def test_searches_of_2000_have_places_for_all_values_that_they_lack(
    contract: str,
) -> None:
    own = [row for row in ROWS if row.contract == contract]
    lacking = sum(1 - met(row.count / row.samples, 2000) for row in own)
    assert lacking < num_reserved(2000) / 10
