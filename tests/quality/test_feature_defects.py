"""Each feature of the scenario space is needed: some defect shows through it alone.

Take a feature out of the strategies, and its defect here is no longer found.
"""

import pytest

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import OPTIONAL
from syncverify.scenario.features import optional_features
from syncverify.scenario.scenario import Scenario
from tests.programs import identities
from tests.quality.planted.first_drawn import first_drawn
from tests.quality.planted.planted import Planted
from tests.quality.planted.space import SPACE

MAX_PLAYED = 80


def only(features: frozenset[str]) -> Capabilities:
    """Return a contract of plain training steps and these features."""
    # Features promised right are drawn more often than features that may be refused.
    return Capabilities(varying_accumulations=True, right=features)


def has(scenario: Scenario, feature: str) -> bool:
    return feature in {
        f"{topic}={value}" for topic, value in optional_features(scenario)
    }


@pytest.mark.slow
@pytest.mark.parametrize("defect", SPACE, ids=lambda d: d.feature)
def test_defect_shows_through_its_feature_alone(defect: Planted) -> None:
    played = 0

    def shows_the_defect(scenario: Scenario) -> bool:
        nonlocal played
        if played == MAX_PLAYED or not has(scenario, defect.feature):
            return False
        played += 1
        return defect.identity in identities(defect.subject, scenario)

    capabilities = only(defect.needs | {defect.feature})
    caught = first_drawn(shows_the_defect, capabilities, defect.examples)
    assert caught is not None, f"{played} scenarios with {defect.feature}"
    plain = defect.without(caught)
    assert not has(plain, defect.feature)
    assert identities(defect.subject, plain) == set()


def test_every_feature_has_a_defect() -> None:
    topics = {defect.feature.partition("=")[0] for defect in SPACE}
    features = {str(each) for each in OPTIONAL if each.topic in topics}
    assert {defect.feature for defect in SPACE} == features
