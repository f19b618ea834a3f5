"""Words for uses of parameters and for backward: drawn if covered, shrunk to plain."""

import pytest
from hypothesis import find, settings
from hypothesis.errors import NoSuchExample

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import FEATURES, OPTIONAL, PLAIN
from syncverify.scenario.specs import ParameterSpec
from syncverify.strategies import backwards, uses

PARAMETERS = tuple(ParameterSpec(f"p{i}", (2,), ("R",)) for i in range(4))
PLAIN_STEPS = Capabilities()
WORDS = [w for t, w in OPTIONAL if t == "backward" and not FEATURES[t, w].rare]
SETTINGS = settings(max_examples=2000)


def test_backwards_shrink_to_a_plain_one() -> None:
    assert find(backwards(), lambda _: True) == PLAIN


@pytest.mark.parametrize("word", WORDS)
def test_every_backward_that_is_not_rare_is_drawn(word: str) -> None:
    assert find(backwards(), lambda drawn: drawn == word, settings=SETTINGS) == word


def test_uses_shrink_to_one_parameter_with_another_use() -> None:
    found = find(
        uses(PARAMETERS),
        lambda specs: any(spec.use == "hessian" for spec in specs),
        settings=SETTINGS,
    )
    assert sorted(spec.use for spec in found) == ["hessian", PLAIN, PLAIN, PLAIN]


def test_words_outside_of_the_contract_are_not_drawn() -> None:
    with pytest.raises(NoSuchExample):
        find(backwards(capabilities=PLAIN_STEPS), lambda word: word != PLAIN)
    plain_uses = uses(PARAMETERS, capabilities=PLAIN_STEPS)
    with pytest.raises(NoSuchExample):
        find(plain_uses, lambda specs: specs != PARAMETERS)
