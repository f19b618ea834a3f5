"""A gradient of zeros is a gradient: a class that skips it hangs where one rank has it."""

import pytest

from studies.redteam.wrong.values import SkipsZeroSums
from syncverify.errors import UsageError
from syncverify.scenario.contract import PLAIN_CONTRACT, Capabilities
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.judged_features import judged_features
from syncverify.scenario.names import check_names
from syncverify.scenario.scenario import Scenario
from tests.programs import identities
from tests.quality.planted.first_drawn import first_drawn


@pytest.mark.slow
def test_a_search_draws_zeros_that_show_the_class_that_skips_them() -> None:
    zero = Feature("gradient", "zero")

    def shows(scenario: Scenario) -> bool:
        return zero in judged_features(scenario) and bool(
            identities(SkipsZeroSums, scenario)
        )

    assert first_drawn(shows, PLAIN_CONTRACT, 500) is not None


def test_a_contract_of_sparse_gradients_is_refused() -> None:
    with pytest.raises(UsageError, match="no scenario has sparse gradients"):
        check_names(Capabilities(right=frozenset({"gradient=sparse"})), subject="mine")
