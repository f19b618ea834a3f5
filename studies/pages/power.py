"""Sample scenarios, and write how likely a search meets each feature: `python -m studies.pages.power`.

A defect whose trigger is one feature is met by each scenario that has it. Scenarios of a search
are drawn independently, so that n of them miss a feature with probability (1 - p)^n, where p is
the share of scenarios that have it. The last twentieth of a search belongs to the values that it
has missed. It meets one with probability q, so n examples miss it with (1 - p)^(0.95 n) (1 - q).
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from hypothesis import Phase

from studies.documents import RESULTS, Document, table
from syncverify.scenario.contract import EVERYTHING, PLAIN_CONTRACT, Capabilities
from syncverify.scenario.contributions import magnitude
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.feature_row import Feature, base_word, variant
from syncverify.scenario.feature_table import MANY, TABLE, WORDS
from syncverify.scenario.layout import reduce_axes
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.space import Space
from syncverify.search.drawing import Drawing, EndedError
from syncverify.search.judge import Draw
from syncverify.search.missing_values import (
    num_reserved,
    scenarios_of_missing_values,
)
from syncverify.settings import DEFAULT_RANKS

FIGURES = RESULTS / "power.json"
CONTRACTS: Final = {"plain": PLAIN_CONTRACT, "everything": EVERYTHING}
NUM_SAMPLES = 4000
NUM_SEARCHES = 60
_SEED = 0
_EXAMPLES = (200, 2000)
_ENOUGH = 0.95
_MOST_RANKS: Final = 8  # of the feature size=many ranks
_TINY: Final = "reduced gradients below 2^-24"
_LEAST_OF_FLOAT16: Final = 2.0**-24
# A value in none of n samples has a share below three in n, with 95 % confidence:
# (1 - 3/n)^n is 5 %.
_RULE_OF_THREE = 3


def sample(num_samples: int, num_searches: int) -> dict[str, Any]:
    """Draw scenarios and searches of each contract, and count the values that they have."""
    return {
        "samples": num_samples,
        "searches": num_searches,
        "counts": {
            name: {**_counts(each, num_samples), **_last_counts(each, num_searches)}
            for name, each in CONTRACTS.items()
        },
    }


def _last_counts(capabilities: Capabilities, num_searches: int) -> dict[str, Any]:
    """Count the searches that lack a value, before their last twentieth and after it."""
    before, after = Counter[str](), Counter[str]()
    for seed in range(_SEED + 1, _SEED + 1 + num_searches):
        first, last = drawn_search(capabilities, _EXAMPLES[0], seed)
        before.update(map(str, first))
        after.update(map(str, last))
    return {"missing": before, "still missing": after}


def drawn_search(
    capabilities: Capabilities, num_examples: int, seed: int
) -> tuple[list[Feature], list[Feature]]:
    """Draw the scenarios of a search, and play none.

    Returns:
        The values that are missing before the last twentieth, and after it.
    """
    coverage = Coverage(Space(capabilities, DEFAULT_RANKS))
    reserved = num_reserved(num_examples)

    def take(scenario: Scenario, _: Draw) -> None:
        coverage.add(scenario)
        if coverage.num_scenarios == num_examples - reserved:
            raise EndedError

    drawing = Drawing(capabilities, DEFAULT_RANKS, num_examples, seed)
    drawing.for_each(take, Phase.generate)
    missing = coverage.missing_values()
    for scenario in islice(scenarios_of_missing_values(coverage, seed), reserved):
        coverage.add(scenario)
    return missing, coverage.missing_values()


def _counts(capabilities: Capabilities, num_samples: int) -> dict[str, Any]:
    """Count values and pairs of values; a value of the space that never occurs counts 0."""
    values, pairs = Counter[str](), Counter[tuple[str, str]]()
    coverage = Coverage(Space(capabilities, DEFAULT_RANKS))

    def count(scenario: Scenario, _: Draw) -> None:
        found = sorted(map(str, coverage.judged(scenario)))
        variants = (
            f"{topic}={word}"
            for topic, word in _variants_in(scenario)
            if f"{topic}={base_word(word)}" in found
        )
        values.update({*found, *variants, *_edges_in(scenario)})
        pairs.update((a, b) for n, a in enumerate(found) for b in found[n + 1 :])

    drawing = Drawing(capabilities, DEFAULT_RANKS, num_samples, _SEED)
    drawing.for_each(count, Phase.generate)
    space = Space(capabilities, DEFAULT_RANKS)
    listed = [
        f"{topic}={name}" for topic, names in space.values().items() for name in names
    ]
    listed += [f"ranks={number}" for number in range(MANY["ranks"], _MOST_RANKS + 1)]
    listed += [*_variants_of(capabilities), _TINY]
    shares = [
        pairs[one, other] / num_samples
        for one, other in (sorted(map(str, pair)) for pair in space.pairs())
    ]
    return {
        "values": {name: values[name] for name in listed},
        "pairs": len(shares),
        "likely pairs": {
            str(n): sum(met(share, n) >= _ENOUGH for share in shares) for n in _EXAMPLES
        },
    }


def _variants_of(capabilities: Capabilities) -> Iterator[str]:
    """Yield the variants of words that a contract covers; no table of coverage has them."""
    for topic, rows in WORDS.items():
        for word in rows:
            is_variant = base_word(word) != word
            if is_variant and capabilities.covers(topic, base_word(word)):
                yield f"{topic}={word}"


def _variants_in(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield the words of a scenario that are variants, each with its topic."""
    for name in WORDS:
        topic = TABLE[name]
        parts = scenario.parameters if topic.part == "parameter" else (scenario,)
        for part in parts:
            yield from ((name, word) for word in topic.words_in(part) if variant(word))


def _edges_in(scenario: Scenario) -> Iterator[str]:
    """Yield traits of a scenario that are no features, and that a defect needs to show."""
    for spec in scenario.trainable:
        is_reduced = reduce_axes(scenario.mesh, spec)
        if is_reduced and magnitude(scenario, spec) < _LEAST_OF_FLOAT16:
            yield _TINY


def met(share: float, num_examples: int, share_last: float = 0.0) -> float:
    """Return the probability to meet a value in a search of some examples.

    Args:
        share: Share of scenarios that have it.
        num_examples: Number of examples.
        share_last: Share of searches whose last twentieth meets it where it is missing.
    """
    num_drawn = num_examples - num_reserved(num_examples)
    return 1 - (1 - share) ** num_drawn * (1 - share_last)


def powers(
    figures: Mapping[str, Any], counted: Mapping[str, Any], num_examples: int
) -> dict[str, float]:
    """Return the probability to meet each value of a contract in some examples."""
    return {
        name: met(count / figures["samples"], num_examples, _share_last(counted, name))
        for name, count in counted["values"].items()
    }


def _share_last(counted: Mapping[str, Any], name: str) -> float:
    """Return a lower limit of the share of last twentieths that meet a missing value."""
    missing = counted["missing"].get(name, 0)
    lost = counted["still missing"].get(name, 0) + _RULE_OF_THREE
    return max(0.0, 1 - lost / missing) if missing else 0.0


def page() -> str:
    """Return the figures of the page."""
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    parts = [*_summary(figures), ""]
    for name, counted in figures["counts"].items():
        parts += [f"## Contract: {name}", "", *_table(figures, counted), ""]
    return "\n".join(parts)


def _summary(figures: dict[str, Any]) -> Iterator[str]:
    yield (
        f"{figures['samples']:,} scenarios of each contract, up to {DEFAULT_RANKS} ranks, "
        f"seed {_SEED}; {figures['searches']} searches of {_EXAMPLES[0]} examples."
    )
    for name, counted in figures["counts"].items():
        yield ""
        yield f"**{name}**: " + _words(figures, counted)


def _words(figures: dict[str, Any], counted: dict[str, Any]) -> str:
    few, many = (powers(figures, counted, number) for number in _EXAMPLES)
    below = [name for name, power in many.items() if power < _ENOUGH]
    rarest = sorted(few, key=lambda name: (few[name], name))[:3]
    chances = ", ".join(f"`{name}` ({100 * few[name]:.1f} %)" for name in rarest)
    pairs = " and ".join(
        f"{counted['likely pairs'][str(n)]:,} in {n:,}" for n in _EXAMPLES
    )
    listed = ", ".join(f"`{name}`" for name in below) or "none"
    return (
        f"{len(many) - len(below)} of {len(many)} values are met with at least "
        f"{_ENOUGH:.0%} in {_EXAMPLES[1]:,} examples; below are: {listed}. The weakest "
        f"three, in {_EXAMPLES[0]} examples: {chances}. Of {counted['pairs']:,} pairs of values that "
        f"one scenario may have, so many are met with {_ENOUGH:.0%}: {pairs}."
    )


def _table(figures: dict[str, Any], counted: dict[str, Any]) -> Iterator[str]:
    by_count = sorted(counted["values"].items(), key=lambda item: item[1])
    columns = [powers(figures, counted, number) for number in _EXAMPLES]
    head = ("value", "scenarios", "last twentieth", "met in 200", "met in 2,000")
    return table(
        head,
        (
            (
                f"`{name}`",
                _percent_of(count, figures["samples"]),
                _last(counted, name),
                *(f"{100 * column[name]:.1f} %" for column in columns),
            )
            for name, count in by_count
        ),
    )


def _percent_of(count: int, samples: int) -> str:
    """Return a share in words; of what was never sampled, the upper limit."""
    if not count:
        return f"< {100 * _RULE_OF_THREE / samples:.2f} %"
    return f"{100 * count / samples:.2f} %"


def _last(counted: dict[str, Any], name: str) -> str:
    """Say in how many of the searches that lacked a value the last twentieth met it."""
    missing = counted["missing"].get(name, 0)
    if not missing:
        return "-"
    return f"{missing - counted['still missing'].get(name, 0)} of {missing}"


def main(num_samples: int = NUM_SAMPLES, num_searches: int = NUM_SEARCHES) -> None:
    """Sample, and write the figures and the page."""
    figures = json.dumps(sample(num_samples, num_searches), indent=1)
    FIGURES.write_text(f"{figures}\n", encoding="utf-8")
    PAGE.write()


PAGE: Final = Document("docs/power.md", page, "power")

if __name__ == "__main__":
    main()
