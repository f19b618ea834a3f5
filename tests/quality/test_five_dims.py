"""`shape=4 dims` has tensors of five dims too: a defect shows through them alone."""

import pytest
import torch

from syncverify.bugbank.bases.main_grads import MainGrads
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.distribution import in_format
from syncverify.scenario.scenario import Scenario
from tests.programs import identities
from tests.quality.planted.first_drawn import first_drawn
from tests.quality.planted.space import LeavesVolumesOut, of_dims

CONTRACT = Capabilities(right=frozenset({"shape=4 dims"}))
UNSENT = ("gradient_equals_reference", "not_reduced")


@pytest.mark.slow
def test_a_search_of_four_dims_meets_five() -> None:
    def shows_the_defect(scenario: Scenario) -> bool:
        has_five = any(len(spec.global_shape) == 5 for spec in scenario.parameters)
        return has_five and UNSENT in identities(LeavesVolumesOut, scenario)

    caught = first_drawn(shows_the_defect, CONTRACT, 300)
    assert caught is not None
    assert identities(LeavesVolumesOut, of_dims(4)(caught)) == set()
    assert identities(MainGrads, caught) == set()


def test_channels_last_of_five_dims_are_innermost() -> None:
    laid_out = in_format(torch.zeros(2, 3, 4, 5, 6), "channels_last")
    assert laid_out.stride() == (360, 1, 90, 18, 3)
