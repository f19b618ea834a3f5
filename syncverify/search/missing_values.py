"""Scenarios for values of the contract that a search has not met.

Note [The last scenarios of a search]
    A value that one scenario of a hundred has is missing in one search of eight that plays
    two hundred. So the last twentieth of the scenarios belongs to the values that no scenario
    has had: each is drawn until it has one. Where no value is missing, the sequence of random
    scenarios goes on. A search of few scenarios may still lack values; its verdict says so.
    But if it plays two scenarios or more, one of them has several ranks.

    Most of the missing values are words that any scenario can take. So a scenario that is played for
    one value takes words of others too: one for each step, each parameter and each topic of the
    scenario.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from hypothesis import Phase

from syncverify.errors import ScenarioFormatError
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.feature_table import FEATURES, PLAIN, TABLE
from syncverify.scenario.features import features_of
from syncverify.scenario.layout import reduce_axes
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.words import may_be_drawn, with_word, words_at
from syncverify.search.drawing import Drawing, EndedError, named_seed
from syncverify.search.judge import Draw

_ONE_RESERVED_IN: Final = 20
_MAX_DRAWN: Final = 600
# A value that is this rare seldom comes in a scenario that tells more than those found.
_ENOUGH_DRAWN: Final = 150
_ALONE: Final = Feature("ranks", "1")
_NOT_REDUCED: Final = Feature("reduction", "none")
_WIDE: Final = ("dtype", "float32")
# Numbers of these dtypes have few bits, so a message of fewer bits may lose none.
_NARROW: Final = frozenset({"dtype=bfloat16", "dtype=float16"})
_SPLITS: Final = Feature("buckets", "cap splits")
_NEED_A_SPLIT: Final = (_SPLITS, Feature("size", "many buckets"))

# Topics of which one parameter has at most one value, or none with a special gradient.
_BESIDE_GRADIENTS: Final = ("gradient", "use", "used", "module")


def num_reserved(num_examples: int) -> int:
    """Return the number of scenarios, at most, for values that were not met."""
    return max(num_examples // _ONE_RESERVED_IN, int(num_examples > 1))


def _wanted(coverage: Coverage) -> list[Feature]:
    """List the values to meet; of a search of few scenarios, a world of several ranks."""
    missing = coverage.missing_values()
    if coverage.num_scenarios + 1 >= _ONE_RESERVED_IN:
        return missing
    larger = {Feature("ranks", n) for n in coverage.space.values()["ranks"]} - {_ALONE}
    return sorted(larger)[:1] if larger <= {*missing} else []


def scenarios_of_missing_values(
    coverage: Coverage, random_seed: int
) -> Iterator[Scenario]:
    """Yield a scenario for each value that no scenario had; the caller adds it to `coverage`."""
    for value in _wanted(coverage):
        if value in coverage.missing_values():
            drawn = _drawn(coverage, value, random_seed)
            if drawn:
                least = min(drawn, key=lambda each: _tells_little(each, value))
                yield _with_added_words(least, coverage.missing_values(), coverage)


def _drawn(coverage: Coverage, value: Feature, random_seed: int) -> list[Scenario]:
    """Draw scenarios that have a value, until one shows much about it, or enough were drawn."""
    space = coverage.space
    drawing = Drawing(
        _asking(space.capabilities, value),
        space.max_ranks,
        _MAX_DRAWN,
        named_seed(random_seed, value),
        focus=value.topic if value.topic == "module" else None,
        size=value.value if value.topic == "size" else None,
    )
    found, numbers = list[Scenario](), itertools.count(1)

    def take(scenario: Scenario, _: Draw) -> None:
        is_enough = next(numbers) >= _ENOUGH_DRAWN
        if TABLE[value.topic].fits_any:  # most drawn scenarios can take the word
            scenario = _with_added_words(scenario, [value], coverage)
        if value in features_of(scenario) and value in coverage.judged(scenario):
            found.append(scenario)
            is_enough |= not any(_tells_little(scenario, value))
        if found and is_enough:
            raise EndedError

    drawing.for_each(take, Phase.generate)
    return found


def _steps_too_short(own: Capabilities, value: Feature) -> set[str]:
    """Return the numbers of micro-batches that a value cannot have.

    Where the contract has none of the larger ones, `size=many micro-batches` has them: then all
    other sizes are returned.
    """
    steps = _named("accumulations") - {"accumulations=varying"}
    fewest = FEATURES[value].fewest_micro_batches
    few = {step for step in steps if int(Feature.of(step).value) < fewest}
    if steps - few - own.outside:
        return few
    return _named("size") - {"size=many micro-batches"}


def _named(*topics: str) -> set[str]:
    return {str(each) for each in FEATURES if each.topic in topics}


def _asking(own: Capabilities, value: Feature) -> Capabilities:
    """Return a contract in which a value is drawn more often."""
    outside = own.outside
    if value.topic == "gradient":  # one parameter is special, of plain use
        others = _named(*_BESIDE_GRADIENTS) - {str(value)}
        outside |= others | _steps_too_short(own, value)
    if value.topic == "size":  # it shows best alone, and plain steps are drawn fast
        own = own.plain()
        outside = own.outside | (_NARROW if own.covers(*_WIDE) else frozenset())
    # Values that may be refused are left out of two scenarios of three.
    return replace(
        own, right=own.right | own.refused, refused=frozenset(), outside=outside
    )


def _tells_little(scenario: Scenario, value: Feature) -> tuple[bool, ...]:
    """Return the key by which the scenario comes first that shows most about a value."""
    features, mesh = {*features_of(scenario)}, scenario.mesh
    num_reduced = sum(bool(reduce_axes(mesh, spec)) for spec in scenario.trainable)
    return (
        scenario.mesh.num_ranks == 1 and value != _ALONE,
        _NOT_REDUCED in features and value != _NOT_REDUCED,
        _SPLITS in features and value not in _NEED_A_SPLIT,
        # An offset beyond the first reduced gradient is that of another one.
        value.topic == "size" and num_reduced == 1,
    )


def _with_added_words(
    scenario: Scenario, values: Iterable[Feature], coverage: Coverage
) -> Scenario:
    """Return a scenario with words of some values, on which it judges something.

    What the scenario judged without the words, it judges with them.
    """
    judged = coverage.judged(scenario)
    if scenario.module != PLAIN:
        return scenario
    for value in values:
        if value not in judged and TABLE[value.topic].fits_any:
            for candidate in _candidates(scenario, *value):
                found = coverage.judged(candidate)
                is_legal = may_be_drawn(candidate, coverage.space.capabilities)
                if found >= {*judged, value} and is_legal:
                    scenario, judged = candidate, found
                    break
    return scenario


def _candidates(scenario: Scenario, topic: str, word: str) -> Iterator[Scenario]:
    """Yield the scenario with a word in the place of a plain one, once for each place."""
    is_of_parameter = TABLE[topic].part == "parameter"
    for place, known in enumerate(words_at(scenario, topic)):
        trains = not is_of_parameter or scenario.parameters[place].requires_grad
        if known == TABLE[topic].plain_word and trains:
            with contextlib.suppress(ScenarioFormatError):
                yield with_word(scenario, topic, word, [place])
