"""One large number at a time: defects of widths, chunks, rings and counters show."""

import pytest
import torch

from studies.redteam.second.wrong.numbers import MaskOfThirtyTwoBits
from studies.redteam.wrong.sizes import DropsTheRest, KnowsTwoGroups
from syncverify.judge.decoding import explain
from syncverify.judge.properties import check
from syncverify.judge.reference import ExpectedGradient, reference
from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.features import features_of
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.strategies.enlarged_scenarios import _repeated, _with_parameters
from syncverify.subjects.subject import resolve
from tests.programs import identities
from tests.quality.planted import magnitudes
from tests.quality.planted.first_drawn import first_drawn

PLAIN_STEPS = Capabilities(varying_accumulations=True)
DEFECTS = [
    (MaskOfThirtyTwoBits, ("size", "many parameters")),
    (DropsTheRest, ("size", "many elements")),
    (magnitudes.SkipsAfterWarmUp, ("size", "many steps")),
    (magnitudes.CountsInThreeBits, ("size", "many micro-batches")),
    (KnowsTwoGroups, ("buckets", "3 groups")),
]


@pytest.mark.long
def test_each_defect_shows_in_a_default_search() -> None:
    missing = dict(DEFECTS)

    def shows_the_last(scenario: Scenario) -> bool:
        features = set(features_of(scenario))
        for defect in [d for d, feature in missing.items() if feature in features]:
            if identities(defect, scenario):
                del missing[defect]
        return not missing

    first_drawn(shows_the_last, PLAIN_STEPS, 500)
    assert missing == {}


def test_more_parameters_than_usual_come_with_several_steps() -> None:
    """A defect of later steps that eight parameters do not show, nor one step of more."""
    subject = resolve(magnitudes.WrapsAfterFirstStep)
    weights = tuple(ParameterSpec(f"p{n}", (2,), ("R",)) for n in range(2))
    small = Scenario(MeshSpec((2,), ("dp",)), weights, (2,), 16)
    for scenario, is_wrong in (
        (small, False),
        (_with_parameters(small, 9), False),
        (_with_parameters(_repeated(small, 2), 9), True),
    ):
        run = SimBackend().run(scenario, subject)
        assert bool(check(scenario, run, subject.capabilities)) == is_wrong


def test_a_wrong_sum_of_many_micro_batches_is_explained() -> None:
    """A factor for each of forty micro-batches on four ranks is beyond 64 bits."""
    weight = ParameterSpec("w", (17,), ("R",))
    scenario = Scenario(MeshSpec((4,), ("dp",)), (weight,), (40,), 2**20)
    oracle = reference(scenario, Capabilities())
    sums = ExpectedGradient(oracle, weight, 0, 0, 40, (0, 1, 2, 3), 1)
    assert explain(sums, (sums.value() * 5).to(torch.float32)) is not None
