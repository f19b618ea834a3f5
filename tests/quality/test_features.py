"""Each feature of the scenario space is needed: some defect shows through it alone.

Take a feature out of the strategies, and its defect here is no longer found. Features of the
autograd engine have a test of their own, which searches nothing.
"""

from collections.abc import Callable

import pytest
import torch

from syncverify.scenario.contract import EVERYTHING, Capabilities
from syncverify.scenario.distribution import in_format
from syncverify.scenario.feature_table import OPTIONAL
from syncverify.scenario.features import optional_features
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.bugbank.bases.careful import LIFECYCLE
from tests.programs import identities
from tests.quality.planted.first_drawn import first_drawn
from tests.quality.planted.modules import MODULE_DEFECTS
from tests.quality.planted.planted import Planted, defects_of
from tests.quality.planted.space import SPACE

MAX_PLAYED = 120
LIFECYCLE_DEFECTS = defects_of("lifecycle_words")
DEFECTS = [*SPACE, *LIFECYCLE_DEFECTS, *MODULE_DEFECTS]
MET: dict[str, tuple[Callable[[Scenario], bool], Capabilities, int]] = {
    "unequal replicas": (lambda s: s.replicas == "unequal", EVERYTHING, 100),
    "updates in backward": (lambda s: s.update == "in_backward", EVERYTHING, 100),
    "evaluations": (lambda s: s.evaluation != "none", Capabilities(), 100),
    "five dims": (
        lambda s: any(len(spec.global_shape) == 5 for spec in s.parameters),
        Capabilities(right=frozenset({"shape=4 dims"})),
        300,
    ),
}


def has(scenario: Scenario, feature: str) -> bool:
    return feature in {
        f"{topic}={value}" for topic, value in optional_features(scenario)
    }


def first_shown(defect: Planted) -> Scenario | None:
    played: set[Scenario] = set()

    def shows_the_defect(scenario: Scenario) -> bool:
        if len(played) == MAX_PLAYED or scenario in played:
            return False
        if not has(scenario, defect.feature):
            return False
        played.add(scenario)
        return defect.identity in identities(defect.subject, scenario)

    assert defect.contract is not None
    for seed in defect.seeds:
        played.clear()
        caught = first_drawn(shows_the_defect, defect.contract, defect.examples, seed)
        if caught is not None:
            return caught
    return None


@pytest.mark.long
@pytest.mark.parametrize(
    "defect",
    [
        pytest.param(
            each,
            id=each.feature,
            marks=pytest.mark.slow if each in SPACE else pytest.mark.long,
        )
        for each in DEFECTS
    ],
)
def test_defect_shows_through_its_feature_alone(defect: Planted) -> None:
    caught = first_shown(defect)
    assert caught is not None
    assert defect.without is not None
    plain = defect.without(caught)
    assert not has(plain, defect.feature)
    assert identities(defect.subject, plain) == set()
    if defect.twin is not None:
        assert identities(defect.twin, caught) == set()


def test_every_feature_has_a_defect() -> None:
    shown = {defect.feature for defect in DEFECTS}
    topics = {feature.partition("=")[0] for feature in shown}
    features = {str(each) for each in OPTIONAL if each.topic in topics}
    assert shown == features
    assert topics >= {*LIFECYCLE, "module"}


@pytest.mark.parametrize("what", MET)
def test_a_search_meets(what: str) -> None:
    is_met, contract, num_scenarios = MET[what]
    assert first_drawn(is_met, contract, num_scenarios) is not None


def test_channels_last_of_five_dims_are_innermost() -> None:
    laid_out = in_format(torch.zeros(2, 3, 4, 5, 6), "channels_last")
    assert laid_out.stride() == (360, 1, 90, 18, 3)
