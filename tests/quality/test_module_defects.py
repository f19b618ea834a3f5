"""Each real module shows a defect that its parameters alone do not show."""

from dataclasses import replace

import pytest

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import OPTIONAL
from syncverify.scenario.features import optional_features
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.subject import resolve
from tests.programs import identities
from tests.quality.planted.first_drawn import first_drawn
from tests.quality.planted.modules import MODULE_DEFECTS, ModuleGrads
from tests.quality.planted.planted import Planted

MAX_SEEDS = 12  # one search may have bad luck
every_defect = pytest.mark.parametrize(
    "defect", MODULE_DEFECTS, ids=lambda defect: defect.feature
)


def without_other_modules(defect: Planted) -> Capabilities:
    """Capabilities of the subject, for scenarios with this module or with none."""
    own = resolve(defect.subject).capabilities
    others = own.features - {"module"}
    return replace(own, features=others | {defect.feature})


def first_shown(defect: Planted) -> Scenario | None:
    subject = resolve(defect.subject)
    feature = tuple(defect.feature.split("="))
    played: set[Scenario] = set()

    def shows_the_defect(scenario: Scenario) -> bool:
        if scenario in played or feature not in optional_features(scenario):
            return False
        played.add(scenario)
        return defect.identity in identities(subject, scenario)

    capabilities = without_other_modules(defect)
    for random_seed in range(MAX_SEEDS):
        scenario = first_drawn(
            shows_the_defect, capabilities, defect.examples, random_seed
        )
        if scenario is not None:
            return scenario
    return None


@pytest.mark.long
@every_defect
def test_module_shows_the_defect(defect: Planted) -> None:
    scenario = first_shown(defect)
    assert scenario is not None
    plain = defect.without(scenario)
    assert identities(resolve(defect.subject), plain) == set()
    assert identities(resolve(ModuleGrads), scenario) == set()


def test_each_module_has_a_defect() -> None:
    assert {defect.feature for defect in MODULE_DEFECTS} == {
        str(feature) for feature in OPTIONAL if feature.topic == "module"
    }
