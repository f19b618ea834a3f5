"""Each defect with a fixed scenario is made small by a search as well, and how small.

Searches take minutes: pytest tests/quality/test_minimal_sizes.py --hypothesis-profile=nightly
Those of the bank's defects are in `test_planted_defects.py`.
"""

import math

import pytest

from syncverify.scenario.scenario import Scenario
from tests.quality.planted.searches import SEARCHES, Search
from tests.quality.planted.sizes import BEYOND_TWO, OTHER_SIZES, PLAINEST, SEED, Size
from tests.quality.test_graph_defects import PLAYED, two_micro_batches
from tests.quality.test_rank_divergence import two_parameters
from tests.quality.test_timing_defects import LEAST

MOST_RANKS, MOST_PARAMETERS, MOST_STEPS = 2, 2, 2


def size_of(scenario: Scenario) -> Size:
    mesh, steps = scenario.mesh.shape, scenario.accumulations
    return mesh, len(scenario.parameters), steps


def is_small(size: Size) -> bool:
    mesh, num_parameters, steps = size
    has_few_ranks = math.prod(mesh) <= MOST_RANKS
    has_few_steps = len(steps) <= MOST_STEPS
    return has_few_ranks and has_few_steps and num_parameters <= MOST_PARAMETERS


def test_what_searches_have_to_come_to_is_small() -> None:
    names = [search.name for search in SEARCHES]
    assert len({*names}) == len(names)
    assert {*OTHER_SIZES} <= {*names}
    assert PLAINEST not in OTHER_SIZES.values()
    large = {name for name, size in OTHER_SIZES.items() if not is_small(size)}
    assert large == {*BEYOND_TWO}
    assert is_small(PLAINEST)


@pytest.mark.parametrize(
    "scenario",
    [LEAST, two_parameters(1), *map(two_micro_batches, PLAYED)],
    ids=["timing", "ranks apart", *PLAYED],
)
def test_fixed_scenarios_are_small(scenario: Scenario) -> None:
    assert is_small(size_of(scenario))


@pytest.mark.nightly
@pytest.mark.parametrize("search", SEARCHES, ids=[search.name for search in SEARCHES])
def test_search_makes_the_defect_small(search: Search) -> None:
    found = search.smallest(SEED)
    assert found is not None
    assert size_of(found.scenario) == OTHER_SIZES.get(search.name, PLAINEST)
