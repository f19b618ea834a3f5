"""Searches make defects small that features or chance show: two ranks, parameters and steps at most.

Searches take minutes: pytest tests/quality/test_minimal_sizes.py --hypothesis-profile=nightly
Those of the bank's defects are played by `syncverify bank`; `test_reports.py` bounds their sizes.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase

from syncverify.backends.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.search.drawing import Drawing, EndedError
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Draw, Judge
from syncverify.search.result import SilentProgress
from syncverify.search.schedules import ScheduleChoice
from syncverify.search.shrinking import shrink
from syncverify.subjects.subject import resolve
from tests.quality.planted import semantics, timing
from tests.quality.planted.graph_words import MODULES
from tests.quality.planted.modules import MODULE_DEFECTS
from tests.quality.planted.planted import (
    EXCLUSIVE,
    MATCH,
    READ,
    VALUE,
    Planted,
    defects_of,
    plant,
)
from tests.quality.planted.space import SPACE
from tests.quality.test_graph_defects import PLAYED, two_micro_batches
from tests.quality.test_timing_defects import LEAST

SEED, EXAMPLES, RANKS = 0, 100, 4
DETERMINISTIC = ("subject_is_deterministic", "acts_otherwise")
# A violation that searches look for here, where the test of the word looks for another one.
MET_AS = {"LearnsFromFirstMicroBatch": (EXCLUSIVE, "touched_in_flight")}
# The features of which a scenario has more than two ranks, parameters or steps, and the reason.
OWN_PARAMETERS = "a real module has the parameters that it has"
BEYOND_TWO = {
    "module=mlp": OWN_PARAMETERS,
    "module=conv": OWN_PARAMETERS,
    "module=conv_channels_last": OWN_PARAMETERS,
    "module=gpt": OWN_PARAMETERS,
    "module=moe": "its three parameters, and a rank without tokens",
    "placement=sub_mesh": "a group of ranks, and others",
}
OF_CHANCE = [
    plant(timing.FallsThrough, (VALUE, "rank_contribution_missing")),
    plant(timing.FirstComeIsRankZero, (MATCH, "collective_mismatch")),
    plant(timing.IgnoresNotYet, (READ, "read_before_reduced")),
    plant(timing.ReducesInRandomOrder, DETERMINISTIC),
    plant(timing.ReducesInOrderOfAddresses, DETERMINISTIC),
    plant(semantics.RefillsAfterALaterWait, (EXCLUSIVE, "touched_in_flight")),
    plant(semantics.TakesReturnForDone, (READ, "read_before_reduced")),
]


def searches() -> Iterator[Any]:
    """Yield each defect with each of its features, and with none where plain steps show it."""
    of_words = defects_of("lifecycle_words")
    of_features = [*SPACE, *of_words, *MODULE_DEFECTS, *defects_of(*MODULES)]
    for entry in (*of_features, *OF_CHANCE):
        for feature in sorted(entry.drawn) or [""]:
            named = f"{entry.subject.__name__} {feature}"
            yield pytest.param(entry, feature, id=named)


def narrowed(entry: Planted, feature: str) -> type[Any]:
    """Return the subject as one that promises its features, and covers no other."""
    if not feature:
        return entry.subject
    own = resolve(entry.subject).capabilities
    capabilities = replace(
        own,
        features=frozenset(),
        right=entry.needs | {feature},
        outside=frozenset(),
    )
    return type(entry.name, (entry.subject,), {"capabilities": capabilities})


def smallest(entry: Planted, feature: str) -> FoundViolation:
    """Search for the violation, pass over other ones, and return it after shrinking."""
    subject = resolve(narrowed(entry, feature))
    identity = MET_AS.get(entry.subject.__name__, entry.identity)
    judge = Judge(subject, SimBackend(), ScheduleChoice(), SEED)
    drawing = Drawing(subject.capabilities, RANKS, EXAMPLES, SEED)
    met: list[FoundViolation] = []

    def look(scenario: Scenario, draw: Draw) -> None:
        judged = judge.judge_scenario(scenario, draw, twice=identity == DETERMINISTIC)
        if identity in judged.violations:
            met.append(judged.violations[identity])
            raise EndedError

    drawing.for_each(look, Phase.generate)
    return shrink(drawing, judge, identity, met[0], SilentProgress())


def is_small(scenario: Scenario) -> bool:
    sizes = (math.prod(scenario.mesh.shape), len(scenario.parameters))
    return max(*sizes, scenario.num_steps) <= 2


@pytest.mark.parametrize(
    "scenario",
    [LEAST, *map(two_micro_batches, PLAYED)],
    ids=["timing", *PLAYED],
)
def test_fixed_scenarios_are_small(scenario: Scenario) -> None:
    assert is_small(scenario)


@pytest.mark.nightly
@pytest.mark.parametrize(("entry", "feature"), [*searches()])
def test_search_makes_the_defect_small(entry: Planted, feature: str) -> None:
    found = smallest(entry, feature)
    assert is_small(found.scenario) == (feature not in BEYOND_TWO)
