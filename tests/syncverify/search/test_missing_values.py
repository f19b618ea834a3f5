"""Each value of a contract is met, or the verdict says how many are not."""

from typing import Any

import pytest

from syncverify.scenario.contract import PLAIN_CONTRACT
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.features import features_of
from syncverify.scenario.space import Space
from syncverify.search.drawing import Drawing
from syncverify.search.missing_values import num_reserved, scenarios_of_missing_values
from syncverify.subjects.subject import resolve


def played(capabilities: Any, seed: int, examples: int) -> Coverage:
    """Cover what a search plays, without playing it."""
    coverage = Coverage(Space(capabilities, 4))
    for scenario in Drawing(capabilities, 4, examples, seed).drawn():
        coverage.add(scenario)
    return coverage


def complete(coverage: Coverage, seed: int) -> int:
    count = 0
    for scenario in scenarios_of_missing_values(coverage, seed):
        coverage.add(scenario)
        count += 1
    return count


@pytest.mark.long
@pytest.mark.parametrize(
    "subject", [pytest.param("ddp", marks=pytest.mark.nightly), "synchronizer", "plain"]
)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_the_last_twentieth_of_two_hundred_meets_each_value(
    subject: str, seed: int
) -> None:
    is_plain = subject == "plain"
    capabilities = PLAIN_CONTRACT if is_plain else resolve(subject).capabilities
    coverage = played(capabilities, seed, 190)
    assert complete(coverage, seed) <= 10
    assert coverage.missing_values() == []


@pytest.mark.long
def test_many_parameters_are_in_one_bucket_on_several_ranks() -> None:
    seed, many = 1, Feature("size", "many parameters")
    coverage = Coverage(Space(PLAIN_CONTRACT, 4))
    for scenario in Drawing(PLAIN_CONTRACT, 4, 30, seed).drawn():
        if many not in features_of(scenario):
            coverage.add(scenario)
    assert many in coverage.missing_values()
    large = next(
        each
        for each in scenarios_of_missing_values(coverage, seed)
        if many in features_of(each)
    )
    # What the table calls many.
    assert len(large.parameters) >= 32
    assert large.mesh.num_ranks > 1
    assert ("buckets", "cap splits") not in {*features_of(large)}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_two_scenarios_have_a_world_of_several_ranks(seed: int) -> None:
    coverage = played(PLAIN_CONTRACT, seed, 2 - num_reserved(2))
    complete(coverage, seed)
    assert set(coverage.table()["ranks"]) != {"1"}
    # One is drawn, and one is reserved for missing values.
    assert coverage.num_scenarios <= 2
