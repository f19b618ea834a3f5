"""A focus makes a topic's special values frequent, for the drawing that it is given to."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import InvalidArgument

from syncverify.scenario.contract import EVERYTHING, Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.space import BUCKET_CAP, FOCUS_TOPICS, is_in_focus
from syncverify.strategies import scenarios
from syncverify.strategies.bucket_caps import bucket_edges

# Focused drawing of other topics draws a scenario several times to meet a rare value.
QUICK = (BUCKET_CAP, "event")


def drawn(count: int, focus: str | None) -> list[Scenario]:
    """Return the first scenarios of one sequence, drawn with a focus or with None."""
    listed: list[Scenario] = []

    @seed(0)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(scenarios(focus=focus))
    def note(scenario: Scenario) -> None:
        listed.append(scenario)

    note()
    return listed


@pytest.fixture(scope="module")
def without_focus() -> list[Scenario]:
    # Hypothesis varies one example for a while: a dozen of them are much alike.
    return drawn(100, None)


def is_at_edge(scenario: Scenario) -> bool:
    edges = bucket_edges(scenario.mesh, scenario.parameters, near_misses=True)
    return scenario.bucket_cap_bytes in edges


def share(listed: list[Scenario], holds: Callable[[Scenario], bool]) -> float:
    return sum(map(holds, listed)) / len(listed)


@pytest.mark.long
@pytest.mark.parametrize(
    "topic",
    [
        pytest.param(topic, marks=[] if topic in QUICK else pytest.mark.nightly)
        for topic in FOCUS_TOPICS
    ],
)
def test_focus_raises_the_share_of_its_topic(
    topic: str, without_focus: list[Scenario]
) -> None:
    def holds(scenario: Scenario) -> bool:
        return (
            is_at_edge(scenario)
            if topic == BUCKET_CAP
            else is_in_focus(scenario, topic)
        )

    usual, focused = share(without_focus, holds), share(drawn(60, topic), holds)
    assert focused > max(usual, min(1.5 * usual, 0.9))


@pytest.mark.slow
def test_a_focus_changes_no_later_drawing() -> None:
    before = drawn(20, None)
    assert drawn(20, "event") != before
    assert drawn(20, None) == before


def test_unknown_topic_names_the_nearest() -> None:
    with pytest.raises(
        InvalidArgument,
        match=r"^unknown focus 'bucketcap': did you mean 'bucket_cap'\?",
    ):
        scenarios(focus="bucketcap")


def test_a_topic_is_refused_where_the_contract_lacks_it() -> None:
    with pytest.raises(InvalidArgument, match=r"^nothing to focus on: .* 'event' "):
        scenarios(focus="event", capabilities=Capabilities())
    scenarios(focus="event", capabilities=EVERYTHING)
