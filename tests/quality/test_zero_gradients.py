"""A gradient of zeros is a gradient: a class that skips it hangs where one rank has it."""

from dataclasses import replace

import pytest

from syncverify.errors import UsageError
from syncverify.scenario.contract import PLAIN_CONTRACT, Capabilities
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.features import features_of
from syncverify.scenario.judged_features import judged_features
from syncverify.scenario.names import check_names
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from tests.programs import identities
from tests.quality.planted.first_drawn import first_drawn
from tests.quality.planted.large_numbers import SendsZeros, SkipsZeros

WEIGHT = ParameterSpec("p0", (3,), ("R",))
OTHER = ParameterSpec("p1", (2,), ("R",))


def of(word: str) -> Scenario:
    special = replace(WEIGHT, gradient=word)
    return Scenario(MeshSpec((3,), ("dp",)), (special, OTHER), (2, 1), 1 << 20)


def test_a_class_that_skips_zeros_shows_where_one_rank_has_them() -> None:
    assert Feature("gradient", "zero") in {*features_of(of("zero"))}
    assert identities(SkipsZeros, of("zero")) != set()
    assert identities(SkipsZeros, of("finite")) == set()


@pytest.mark.parametrize("subject", ["synchronizer", "ddp", SendsZeros])
def test_zeros_are_right_for_others(subject: str | type) -> None:
    assert identities(subject, of("zero")) == set()


@pytest.mark.slow
def test_a_search_draws_zeros_that_show_the_class_that_skips_them() -> None:
    zero = Feature("gradient", "zero")

    def shows(scenario: Scenario) -> bool:
        return zero in judged_features(scenario) and bool(
            identities(SkipsZeros, scenario)
        )

    assert first_drawn(shows, PLAIN_CONTRACT, 500) is not None


def test_a_contract_of_sparse_gradients_is_refused() -> None:
    with pytest.raises(UsageError, match="no scenario has sparse gradients"):
        check_names(Capabilities(right=frozenset({"gradient=sparse"})), subject="mine")
