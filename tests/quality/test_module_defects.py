"""Each real module shows a defect that its parameters alone do not show."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from planted.feature_bank import FeatureDefect
from planted.modules import MODULE_DEFECTS, ModuleGrads

from strategies import scenarios
from strategies.reproducibility import blind_to_local_code
from syncverify.backends.sim import SimBackend
from syncverify.features import BEYOND, beyond
from syncverify.properties import check
from syncverify.scenario import Scenario
from syncverify.subject import Subject, resolve

MAX_SEEDS = 12  # one search may have bad luck
every_defect = pytest.mark.parametrize(
    "defect", MODULE_DEFECTS, ids=lambda defect: defect.feature
)


def drawn(
    feature: str, subject: Subject, *, count: int, random_seed: int
) -> list[Scenario]:
    """Draw scenarios, of other modules none, and keep those with the feature."""
    topic, _, value = feature.partition("=")
    others = {f"{topic}={other}" for other in BEYOND[topic] if other != value}
    outside = subject.capabilities.outside | others
    found: list[Scenario] = []

    @seed(random_seed)
    @settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(scenarios(capabilities=replace(subject.capabilities, outside=outside)))
    def draw(scenario: Scenario) -> None:
        if (topic, value) in beyond(scenario):
            found.append(scenario)

    with blind_to_local_code():
        draw()
    return list(dict.fromkeys(found))


def identities(scenario: Scenario, subject: Subject) -> set[tuple[str, str]]:
    run = SimBackend().run(scenario, subject)
    return {each.identity for each in check(scenario, run, subject.capabilities)}


def shown_in(defect: FeatureDefect) -> Iterator[Scenario]:
    subject = resolve(defect.subject)
    for random_seed in range(MAX_SEEDS):
        for scenario in drawn(
            defect.feature, subject, count=defect.examples, random_seed=random_seed
        ):
            if (defect.property, defect.cause) in identities(scenario, subject):
                yield scenario


@pytest.mark.slow
@every_defect
def test_module_shows_the_defect(defect: FeatureDefect) -> None:
    scenario = next(shown_in(defect))
    plain = defect.without(scenario)
    assert identities(plain, resolve(defect.subject)) == set()
    assert identities(scenario, resolve(ModuleGrads)) == set()


def test_each_module_has_a_defect() -> None:
    assert {defect.feature for defect in MODULE_DEFECTS} == {
        f"module={name}" for name in BEYOND["module"]
    }
