"""Each variant of a word is needed: some defect shows through it, and not through its word."""

import itertools
from dataclasses import replace

import pytest

from syncverify.judge.properties import check
from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_row import base_word
from syncverify.scenario.feature_table import EVENTS, PLAIN, TABLE, WORDS
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.subject import resolve
from tests.quality.planted.first_drawn import first_drawn
from tests.quality.planted.word_variants import OTHERS, having

EVERY_VARIANT = {
    f"{topic}={row.value}"
    for topic in TABLE
    for row in TABLE[topic].rows
    if row.value != base_word(row.value)
}
# Backwards that write `.grad`, or free it, in their own ways.
_BACKWARDS = {
    "synchronizer": (PLAIN, "create_graph", "reentrant"),
    "ddp": (PLAIN, "create_graph"),
}


def wrong_on_streams(variant: str, name: str) -> dict[tuple[str, str], list[str]]:
    """Play a variant on each choice of streams; return the violations by choice."""
    found, subject = {}, resolve(name)
    for launch, backward in itertools.product(WORDS["launch"], _BACKWARDS[name]):
        scenario = replace(having(variant), launch=launch, backward=backward)
        run = SimBackend().run(scenario, subject)
        if violations := check(scenario, run, subject.capabilities):
            found[launch, backward] = [each.summary for each in violations]
    return found


@pytest.mark.long(2)
@pytest.mark.parametrize("variant", sorted(EVERY_VARIANT))
def test_the_synchronizer_is_right_on_each_stream(variant: str) -> None:
    assert wrong_on_streams(variant, "synchronizer") == {}


@pytest.mark.long
@pytest.mark.parametrize(
    "event", [word for word, event in EVENTS.items() if event.factor]
)
def test_ddp_is_right_where_the_caller_replaces_gradients(event: str) -> None:
    """DDP's hooks keep the nodes of the stream of `bind()`, which accumulate in each step."""
    assert wrong_on_streams(f"event={event}", "ddp") == {}


def test_every_variant_has_a_defect() -> None:
    assert {each.feature for each in OTHERS if each.is_wrong} == EVERY_VARIANT


@pytest.mark.slow
@pytest.mark.parametrize("variant", sorted(EVERY_VARIANT))
def test_a_search_of_its_word_meets_the_variant(variant: str) -> None:
    """Scenarios have two steps or more, since most variants make steps differ."""
    topic, _, way = variant.partition("=")
    word = frozenset({base_word(variant)})

    def has(scenario: Scenario) -> bool:
        words = {
            "used": [spec.used for spec in scenario.parameters],
            "use": [spec.use for spec in scenario.parameters],
            "event": scenario.events,
            "readiness": [scenario.readiness],
        }
        is_long = scenario.num_steps > 1 or topic == "use"
        return is_long and way in words[topic]

    for contract in (Capabilities(features=word), Capabilities(right=word)):
        assert first_drawn(has, contract, 200) is not None
