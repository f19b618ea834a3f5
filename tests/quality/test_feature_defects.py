"""Each feature of the scenario space is needed: some defect shows through it alone.

Take a feature out of the strategies, and its defect here is no longer found.
"""

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from planted.feature_bank import FeatureDefect
from planted.space import SPACE

from strategies import scenarios
from strategies.reproducibility import blind_to_local_code
from syncverify.backends.sim import SimBackend
from syncverify.features import BEYOND, beyond
from syncverify.properties import check
from syncverify.scenario import Scenario
from syncverify.subject import Capabilities, resolve

FEATURE_DEFECTS = SPACE
MAX_PLAYED = 40


def only(features: frozenset[str]) -> Capabilities:
    """Ask for plain training steps that have these features, now and then."""
    everything = {f"{topic}={value}" for topic in BEYOND for value in BEYOND[topic]}
    return Capabilities(
        varying_accumulations=True,
        outside=frozenset(everything - features),
        promises=features,  # drawn more often than what may be refused
    )


def drawn(capabilities: Capabilities, num_scenarios: int) -> list[Scenario]:
    """Draw as a search does."""
    listed: list[Scenario] = []

    @seed(0)
    @settings(
        max_examples=num_scenarios,
        phases=[Phase.generate],
        database=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(scenarios(capabilities=capabilities))
    def draw(scenario: Scenario) -> None:
        listed.append(scenario)

    with blind_to_local_code():
        draw()
    return listed


def identities(scenario: Scenario, defect: FeatureDefect) -> set[tuple[str, str]]:
    subject = resolve(defect.subject)
    run = SimBackend().run(scenario, subject)
    return {v.identity for v in check(scenario, run, subject.capabilities)}


def has(scenario: Scenario, feature: str) -> bool:
    return feature in {f"{topic}={value}" for topic, value in beyond(scenario)}


@pytest.mark.slow
@pytest.mark.parametrize("defect", FEATURE_DEFECTS, ids=lambda d: d.feature)
def test_defect_shows_through_its_feature_alone(defect: FeatureDefect) -> None:
    wanted = (defect.property, defect.cause)
    capabilities = only(defect.needs | {defect.feature})
    listed = drawn(capabilities, defect.examples)
    with_it = [s for s in listed if has(s, defect.feature)]
    caught = next(
        (s for s in with_it[:MAX_PLAYED] if wanted in identities(s, defect)), None
    )
    assert caught is not None, f"{len(with_it)} scenarios with {defect.feature}"
    plain = defect.without(caught)
    assert not has(plain, defect.feature)
    assert identities(plain, defect) == set()


def test_every_feature_has_a_defect() -> None:
    topics = {defect.feature.partition("=")[0] for defect in FEATURE_DEFECTS}
    features = {f"{t}={value}" for t in topics for value in BEYOND[t]}
    assert {defect.feature for defect in FEATURE_DEFECTS} == features
