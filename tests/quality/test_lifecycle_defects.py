"""Each word of a lifecycle is needed: some defect shows through it alone.

Take a word out of the strategies, and its defect here is no longer found. The harness
is silent on the synchronizer that gets all of them right; over 1,000 scenarios:
pytest tests/quality/test_lifecycle_defects.py --hypothesis-profile=nightly
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from planted.feature_bank import FeatureDefect
from planted.lifecycle_bank import LIFECYCLE_DEFECTS
from planted.lifecycle_words import HoldsAccumulators

from strategies import scenarios
from strategies.reproducibility import blind_to_local_code
from syncverify import verify
from syncverify.backends.sim import SimBackend
from syncverify.bugbank.bases.careful import LIFECYCLE, Careful
from syncverify.features import BEYOND, beyond
from syncverify.properties import check
from syncverify.scenario import Scenario
from syncverify.subject import Capabilities, resolve

MAX_PLAYED = 30


def only(defect: FeatureDefect) -> Capabilities:
    """Ask for plain training steps that have the feature, now and then."""
    own = resolve(defect.subject).capabilities
    everything = {f"{topic}={value}" for topic in BEYOND for value in BEYOND[topic]}
    asked = frozenset({defect.feature})
    # What has to be right is drawn more often than what may be refused.
    return replace(own, outside=frozenset(everything - asked), promises=asked)


def drawn(defect: FeatureDefect) -> Iterator[Scenario]:
    """Draw scenarios that have the feature."""
    listed: list[Scenario] = []
    capabilities = only(defect)

    @seed(0)
    @settings(
        max_examples=defect.examples,
        phases=[Phase.generate],
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(scenarios(capabilities=capabilities))
    def draw(scenario: Scenario) -> None:
        listed.append(scenario)

    with blind_to_local_code():
        draw()
    return (scenario for scenario in dict.fromkeys(listed) if has(scenario, defect))


def has(scenario: Scenario, defect: FeatureDefect) -> bool:
    return defect.feature in {f"{topic}={value}" for topic, value in beyond(scenario)}


def identities(scenario: Scenario, subject: type[Any]) -> set[tuple[str, str]]:
    run = SimBackend().run(scenario, resolve(subject))
    found = check(scenario, run, resolve(subject).capabilities)
    return {violation.identity for violation in found}


@pytest.mark.slow
@pytest.mark.parametrize("defect", LIFECYCLE_DEFECTS, ids=lambda d: d.feature)
def test_defect_shows_through_its_word_alone(defect: FeatureDefect) -> None:
    wanted = (defect.property, defect.cause)
    played = islice(drawn(defect), MAX_PLAYED)
    caught = next((s for s in played if wanted in identities(s, defect.subject)), None)
    assert caught is not None
    plain = defect.without(caught)
    assert not has(plain, defect)
    assert identities(plain, defect.subject) == set()
    assert identities(caught, Careful) == set()


def test_every_word_of_a_lifecycle_has_a_defect() -> None:
    words = {f"{topic}={value}" for topic in LIFECYCLE for value in BEYOND[topic]}
    assert {defect.feature for defect in LIFECYCLE_DEFECTS} == words


@pytest.mark.slow
@pytest.mark.parametrize("twin", [Careful, HoldsAccumulators])
def test_correct_lifecycle_has_no_violation(twin: type[Any]) -> None:
    nightly = settings().max_examples
    examples = nightly if nightly >= 1000 else 30
    report = verify(twin, backend="sim", ranks=4, examples=examples, seed=0)
    assert report.violations == ()
    assert report.examples == examples
