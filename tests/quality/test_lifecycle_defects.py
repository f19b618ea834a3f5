"""Each word of a lifecycle is needed: some defect shows through it alone.

Take a word out of the strategies, and its defect here is no longer found. The harness
is silent on the synchronizer that gets all of them right; over 1,000 scenarios:
pytest tests/quality/test_lifecycle_defects.py --hypothesis-profile=nightly
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings

from syncverify import verify
from syncverify.bugbank.bases.careful import LIFECYCLE, Careful
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import OPTIONAL
from syncverify.scenario.features import optional_features
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.subject import resolve
from tests.programs import identities
from tests.quality.planted.first_drawn import first_drawn
from tests.quality.planted.lifecycle_bank import LIFECYCLE_DEFECTS
from tests.quality.planted.lifecycle_words import HoldsAccumulators
from tests.quality.planted.planted import Planted

MAX_PLAYED = 120


def only(defect: Planted) -> Capabilities:
    """Return a contract of plain training steps and the feature of a defect."""
    own = resolve(defect.subject).capabilities
    shown_by = frozenset({defect.feature})
    # Features promised right are drawn more often than features that may be refused.
    return replace(own, features=frozenset(), right=shown_by)


def has(scenario: Scenario, defect: Planted) -> bool:
    return defect.feature in {
        f"{topic}={value}" for topic, value in optional_features(scenario)
    }


@pytest.mark.long
@pytest.mark.parametrize("defect", LIFECYCLE_DEFECTS, ids=lambda d: d.feature)
def test_defect_shows_through_its_word_alone(defect: Planted) -> None:
    played: set[Scenario] = set()

    def shows_the_defect(scenario: Scenario) -> bool:
        if len(played) == MAX_PLAYED or scenario in played or not has(scenario, defect):
            return False
        played.add(scenario)
        found = identities(defect.subject, scenario)
        return defect.identity in found

    caught = first_drawn(
        shows_the_defect, only(defect), defect.examples, defect.random_seed
    )
    assert caught is not None
    plain = defect.without(caught)
    assert not has(plain, defect)
    assert identities(defect.subject, plain) == set()
    assert identities(Careful, caught) == set()


def test_every_word_of_a_lifecycle_has_a_defect() -> None:
    words = {str(feature) for feature in OPTIONAL if feature.topic in LIFECYCLE}
    assert {defect.feature for defect in LIFECYCLE_DEFECTS} == words


@pytest.mark.long
@pytest.mark.parametrize(
    "twin", [pytest.param(Careful, marks=pytest.mark.nightly), HoldsAccumulators]
)
def test_correct_lifecycle_has_no_violation(twin: type[Any]) -> None:
    nightly = settings().max_examples
    examples = nightly if nightly >= 1000 else 30
    report = verify(twin, backend="sim", ranks=4, examples=examples, seed=0)
    assert report.violations == ()
    assert report.examples == examples
