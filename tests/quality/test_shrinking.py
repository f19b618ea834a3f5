"""The reported example of a planted defect is small enough to read at a glance.

Searches assert the size of each defect of the bank (`test_planted_defects.py`). These tests
bound the asserted sizes, and say why some are larger.
"""

import math

import pytest

from syncverify.scenario.features import optional_features
from tests.quality.planted.bank import DEFECTS, Defect
from tests.quality.planted.stream_bank import STREAM_DEFECTS, StreamDefect

MOST_RANKS, MOST_PARAMETERS, MOST_STEPS = 2, 2, 2
# Two axes of two ranks each are the least mesh on which axes can be confused.
OF_TWO_AXES = {
    "expert-divisor-wrong-mesh",
    "dp-group-ignores-sequence-parallel",
    "reduce-dtype-skips-second-leg",
    "cross-group-collective-order",
}
# An uneven shard beside two replicated parameters; a staging buffer in its second turn.
OF_THREE_PARAMETERS = {"size-mismatch-does-not-hang", "pingpong-buffer-reused-early"}


@pytest.mark.parametrize("defect", DEFECTS, ids=[d.subject.__name__ for d in DEFECTS])
def test_searches_assert_small_scenarios(defect: Defect) -> None:
    num_ranks = math.prod(defect.mesh)
    is_large = defect.entry_id in OF_TWO_AXES
    assert num_ranks == 4 if is_large else num_ranks <= MOST_RANKS
    most = 3 if defect.entry_id in OF_THREE_PARAMETERS else MOST_PARAMETERS
    assert defect.num_parameters <= most
    assert len(defect.accumulations) <= MOST_STEPS
    assert sum(defect.accumulations) <= 3


@pytest.mark.parametrize(
    "defect", STREAM_DEFECTS, ids=[d.subject.__name__ for d in STREAM_DEFECTS]
)
def test_defects_of_streams_are_shown_by_small_scenarios(defect: StreamDefect) -> None:
    scenario = defect.scenario
    if len(scenario.mesh.shape) == 1:
        assert scenario.mesh.num_ranks <= MOST_RANKS
    most = 3 if defect.entry_id in OF_THREE_PARAMETERS else MOST_PARAMETERS
    assert len(scenario.parameters) <= most
    assert scenario.num_steps <= MOST_STEPS
    assert list(optional_features(scenario)) == []
