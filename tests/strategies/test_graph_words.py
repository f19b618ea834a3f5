"""How losses use parameters and how backward runs: drawn where covered, shrunk to plain."""

from dataclasses import replace

import pytest
from hypothesis import find, given, settings

from strategies import backwards, scenarios, uses
from syncverify.features import ALL_BEYOND, BEYOND, NEVER_TOGETHER, beyond
from syncverify.scenario import ParameterSpec, Scenario
from syncverify.subject import DEFAULT_CAPABILITIES
from syncverify.vocabulary import PLAIN, RARE

PARAMETERS = tuple(ParameterSpec(f"p{i}", (2,), ("R",)) for i in range(4))
PROMISES_NOTHING = replace(DEFAULT_CAPABILITIES, outside=ALL_BEYOND)
WORDS = [word for word in BEYOND["backward"] if word not in RARE]
SETTINGS = settings(max_examples=2000)


def test_backwards_shrink_to_a_plain_one() -> None:
    assert find(backwards(), lambda _: True) == PLAIN


@pytest.mark.parametrize("word", WORDS)
def test_every_backward_that_is_not_rare_is_drawn(word: str) -> None:
    assert find(backwards(), lambda drawn: drawn == word, settings=SETTINGS) == word


def test_uses_shrink_to_one_parameter_that_is_used_specially() -> None:
    found = find(
        uses(PARAMETERS),
        lambda specs: any(spec.use == "hessian" for spec in specs),
        settings=SETTINGS,
    )
    assert sorted(spec.use for spec in found) == ["hessian", PLAIN, PLAIN, PLAIN]


def test_what_a_subject_does_not_cover_is_not_drawn() -> None:
    assert find(backwards(capabilities=PROMISES_NOTHING), lambda _: True) == PLAIN
    plainly = uses(PARAMETERS, capabilities=PROMISES_NOTHING)
    assert find(plainly, lambda _: True) == PARAMETERS


@settings(max_examples=300)
@given(scenarios())
def test_what_makes_no_sense_together_is_not_drawn(scenario: Scenario) -> None:
    features = {f"{topic}={value}" for topic, value in beyond(scenario)}
    assert not [pair for pair in NEVER_TOGETHER if pair <= features]
    assert features.isdisjoint(f"{t}={w}" for w in RARE for t in ("use", "backward"))
