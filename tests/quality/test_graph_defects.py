"""Features of the autograd engine are needed: each defect here shows through them alone.

Each word is drawn by its strategy and put into one scenario, so that no search is played.
That no other word shows a defect is played by night:
pytest tests/quality/test_graph_defects.py --hypothesis-profile=nightly
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import find, settings

from syncverify.playing.program.graphs.cpp import NoCompilerError
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import FEATURES, OPTIONAL, PLAIN
from syncverify.scenario.scenario import Scenario
from syncverify.strategies import backwards, uses
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from tests.engine_scenarios import scenario_of
from tests.programs import identities
from tests.quality.planted import graphs, watching
from tests.quality.planted.graph_words import GROUPS, MODULES, NOT_SHOWN
from tests.quality.planted.planted import Planted, defects_of

GRAPH_DEFECTS = defects_of(*MODULES)
CORRECT = [
    PlainGrads,
    graphs.HasMainGrads,
    graphs.HearsMarks,
    graphs.KeepsZeros,
    graphs.StartsAfterBackward,
    watching.RunsMicroBatches,
    watching.WatchesCalls,
    watching.WatchesBackwards,
    watching.InterceptsBackward,
    watching.WalksGraph,
]
# Without compiled code, which takes long, and words that ranks of one process cannot play.
GRAPH_FEATURES = [each for each in OPTIONAL if each.topic in {"use", "backward"}]
PLAYED = [
    str(feature)
    for feature in GRAPH_FEATURES
    if not FEATURES[feature].rare or feature.value == "deep_reentrant"
]
# A feature by itself, or those that no synchronizer tells from each other.
NEEDED = [
    *(f for f in PLAYED if f != "backward=deep_reentrant" and not any(f in g for g in GROUPS)),
    *(f for group in GROUPS for f in sorted(group)),
]  # fmt: skip
ASKED_FOR = sorted(
    str(feature)
    for feature in GRAPH_FEATURES
    if FEATURES[feature].rare and str(feature) not in NOT_SHOWN
)
DRAWS = settings(max_examples=2000, database=None)
every_defect = pytest.mark.parametrize(
    "defect", GRAPH_DEFECTS, ids=[defect.subject.__name__ for defect in GRAPH_DEFECTS]
)


def two_micro_batches(feature: str) -> Scenario:
    topic, _, word = feature.partition("=")
    scenario = scenario_of(topic, word)
    return replace(scenario, accumulations=(2,), parameters=scenario.parameters[:2])


def drawn(feature: str) -> Scenario:
    """Have the strategy draw the word, which is all that it may draw."""
    topic, _, word = feature.partition("=")
    only = Capabilities(features=frozenset({feature}))
    scenario = two_micro_batches(feature)
    plain = tuple(replace(spec, use=PLAIN) for spec in scenario.parameters)
    scenario = replace(scenario, backward=PLAIN, parameters=plain)
    if topic == "backward":
        backward = find(
            backwards(capabilities=only), lambda each: each == word, settings=DRAWS
        )
        return replace(scenario, backward=backward)
    specs = find(
        uses(scenario.parameters, capabilities=only),
        lambda each: all(spec.use == word for spec in each),
        settings=DRAWS,
    )
    return replace(scenario, parameters=specs)


@pytest.mark.slow
@pytest.mark.parametrize("feature", NEEDED)
def test_feature_is_needed_for_a_defect(feature: str) -> None:
    group = next((group for group in GROUPS if feature in group), {feature})
    (defect, *_) = (d for d in GRAPH_DEFECTS if d.drawn <= group and feature in d.drawn)
    assert defect.identity in identities(defect.subject, drawn(feature))


@pytest.mark.long
@every_defect
def test_defect_shows_through_its_features_and_in_no_plain_step(
    defect: Planted,
) -> None:
    for feature in defect.shown_by.intersection(PLAYED):
        shown = identities(defect.subject, two_micro_batches(feature))
        assert defect.identity in shown, feature
    assert identities(defect.subject, two_micro_batches(f"use={PLAIN}")) == set()


@pytest.mark.nightly
@every_defect
def test_defect_shows_through_no_other_feature(defect: Planted) -> None:
    shown = {
        feature
        for feature in PLAYED
        if identities(defect.subject, two_micro_batches(feature))
    }
    assert shown == (defect.shown_by | defect.beside).intersection(PLAYED)


@pytest.mark.nightly
@pytest.mark.parametrize("feature", ASKED_FOR)
def test_defect_shows_through_its_feature(feature: str) -> None:
    (defect, *_) = (d for d in GRAPH_DEFECTS if feature in d.shown_by)
    try:
        shown = identities(defect.subject, two_micro_batches(feature))
    except NoCompilerError as missing:
        pytest.skip(str(missing))
    assert defect.identity in shown


@pytest.mark.long
def test_nothing_is_found_in_a_synchronizer_that_waits_for_the_end() -> None:
    found = {f: identities(PlainGrads, two_micro_batches(f)) for f in PLAYED}
    assert not any(found.values())


@pytest.mark.nightly
@pytest.mark.parametrize("subject", CORRECT)
def test_nothing_is_found_in_a_synchronizer_that_only_looks(subject: type[Any]) -> None:
    found = {f: identities(subject, two_micro_batches(f)) for f in PLAYED}
    assert not any(found.values())
