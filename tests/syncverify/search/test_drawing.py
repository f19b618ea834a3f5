"""Scenarios of a search: independent of each other, and shrunk."""

from collections.abc import Iterable
from itertools import combinations

import pytest
from hypothesis import Phase

import syncverify.search.drawing
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.features import features_of, optional_features
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.space import Space
from syncverify.search.drawing import Drawing, ReproducedError
from syncverify.search.smaller_scenarios import simpler_scenarios
from syncverify.subjects.subject import resolve

NUM_RANKS = 4
ABLE = resolve("synchronizer").capabilities


def drawn(num_scenarios: int, *, random_seed: int = 0) -> list[Scenario]:
    listed: list[Scenario] = []
    drawing = Drawing(ABLE, NUM_RANKS, num_scenarios, random_seed)
    drawing.for_each(lambda scenario, _: listed.append(scenario), Phase.generate)
    return listed


def counted(listed: Iterable[Scenario]) -> Coverage:
    coverage = Coverage(Space(ABLE, NUM_RANKS))
    for scenario in listed:
        coverage.add(scenario)
    return coverage


def share_of_pairs(coverage: Coverage) -> float:
    num_pairs = sum(1 for _ in coverage.space.pairs())
    return 1 - len(coverage.missing_pairs()) / num_pairs


def share_of_contained(listed: Iterable[Scenario]) -> float:
    """Return the share of pairs of values that scenarios contain, judged or not."""
    pairs = {frozenset(pair) for pair in Space(ABLE, NUM_RANKS).pairs()}
    found = set[frozenset[Feature]]()
    for scenario in listed:
        found |= {*map(frozenset, combinations({*features_of(scenario)}, 2))}
    return len(found & pairs) / len(pairs)


@pytest.mark.long
def test_a_short_search_meets_most_pairs() -> None:
    listed = drawn(300)
    assert len(listed) == 300
    # Measured: 292 of 300. Scenarios contain 0.764 of all pairs (0.767 of those without the values
    # of table version 2), and properties judge 0.524. A change of strategies must not lower them.
    assert len(set(listed)) >= 292
    assert share_of_contained(listed) >= 0.76
    assert share_of_pairs(counted(listed)) >= 0.52


def shrunk(wanted: set[tuple[str, str]]) -> Scenario:
    """Draw until a scenario has the wanted features, and shrink it as a search does.

    Hypothesis makes choices smaller, then one thing after the other is left out. Two words
    may meet late; how often they do is a matter of other tests.
    """
    last: list[Scenario] = []

    def probe(scenario: Scenario, _: syncverify.search.drawing.Draw) -> None:
        if wanted <= set(optional_features(scenario)):
            last.append(scenario)
            raise ReproducedError

    Drawing(ABLE, NUM_RANKS, 10_000, 0).for_each(probe, Phase.generate, Phase.shrink)
    least, simpler = last[-1], last[-1:]
    while simpler:
        least = simpler[0]
        simpler = [
            each
            for each in simpler_scenarios(least, ABLE)
            if wanted <= set(optional_features(each))
        ]
    return least


@pytest.mark.long
@pytest.mark.parametrize(
    "wanted",
    [{("use", "twice")}, {("readiness", "by_rank"), ("mesh", "3 axes")}],
    ids=lambda wanted: " and ".join(sorted(map("=".join, wanted))),
)
def test_shrunk_scenarios_have_no_word_that_they_do_not_need(
    wanted: set[tuple[str, str]],
) -> None:
    scenario = shrunk(wanted)
    assert set(optional_features(scenario)) == wanted
    assert scenario.mesh.num_ranks == 1
    assert len(scenario.parameters) <= 2
