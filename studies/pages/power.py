"""Sample scenarios, and write how likely a search meets each feature: `python -m studies.pages.power`.

A defect whose trigger is one feature is met by each scenario that has it. Scenarios of a search
are drawn independently, so that n of them miss a feature with probability (1 - p)^n, where p is
the share of scenarios that have it.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from hypothesis import Phase

from studies.documents import RESULTS, Document, table
from syncverify.scenario.contract import EVERYTHING, PLAIN_CONTRACT, Capabilities
from syncverify.scenario.contributions import magnitude
from syncverify.scenario.feature_row import base_word
from syncverify.scenario.feature_table import MANY, TABLE, WORDS
from syncverify.scenario.features import features_of
from syncverify.scenario.layout import reduce_axes
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.space import Space
from syncverify.search.drawing import Drawing
from syncverify.search.judge import Draw
from syncverify.settings import DEFAULT_RANKS

FIGURES = RESULTS / "power.json"
CONTRACTS: Final = {"plain": PLAIN_CONTRACT, "everything": EVERYTHING}
NUM_SAMPLES = 4000
_SEED = 0
_EXAMPLES = (200, 2000)
_ENOUGH = 0.95
_MOST_RANKS: Final = 8  # of the feature size=many ranks
_TINY: Final = "reduced gradients below 2^-24"
_LEAST_OF_FLOAT16: Final = 2.0**-24
# A share of which nothing was sampled lies below this many occurrences, with 95 %
# confidence: (1 - 3/n)^n is 5 %.
_RULE_OF_THREE = 3


def sample(num_samples: int) -> dict[str, Any]:
    """Draw scenarios of each contract, and count the values that they have."""
    return {
        "samples": num_samples,
        "counts": {
            name: _counts(each, num_samples) for name, each in CONTRACTS.items()
        },
    }


def _counts(capabilities: Capabilities, num_samples: int) -> dict[str, Any]:
    """Count values and pairs of values; a value of the space that never occurs counts 0."""
    values, pairs = Counter[str](), Counter[tuple[str, str]]()

    def count(scenario: Scenario, _: Draw) -> None:
        found = sorted({str(feature) for feature in features_of(scenario)})
        values.update({*found, *_words_in(scenario), *_edges_in(scenario)})
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


def _words_in(scenario: Scenario) -> Iterator[str]:
    """Yield the words of a scenario, variants and plain ones too."""
    for name in WORDS:
        topic = TABLE[name]
        parts = scenario.parameters if topic.part == "parameter" else (scenario,)
        for part in parts:
            yield from (f"{name}={word}" for word in topic.words_in(part))


def _edges_in(scenario: Scenario) -> Iterator[str]:
    """Yield what a scenario has beside its features and shows a defect of its own."""
    for spec in scenario.trainable:
        is_reduced = reduce_axes(scenario.mesh, spec)
        if is_reduced and magnitude(scenario, spec) < _LEAST_OF_FLOAT16:
            yield _TINY


def met(share: float, num_examples: int) -> float:
    """Return the probability to meet a value of a share of scenarios in some examples."""
    return 1 - (1 - share) ** num_examples


def page() -> str:
    """Return the figures of the page."""
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    parts = [*_summary(figures), ""]
    for name, counted in figures["counts"].items():
        parts += [f"## Contract: {name}", "", *_table(counted, figures["samples"]), ""]
    return "\n".join(parts)


def _summary(figures: dict[str, Any]) -> Iterator[str]:
    samples = figures["samples"]
    yield f"{samples:,} scenarios of each contract, up to {DEFAULT_RANKS} ranks, seed {_SEED}."
    for name, counted in figures["counts"].items():
        yield ""
        yield f"**{name}**: " + _words(counted, samples)


def _words(counted: dict[str, Any], samples: int) -> str:
    values = counted["values"]
    weak = {name: met(count / samples, _EXAMPLES[1]) for name, count in values.items()}
    below = [name for name, power in weak.items() if power < _ENOUGH]
    rarest = sorted(values, key=lambda name: (values[name], name))[:3]
    told = ", ".join(
        f"`{name}` ({100 * met(values[name] / samples, _EXAMPLES[0]):.1f} %)"
        for name in rarest
    )
    pairs = " and ".join(
        f"{counted['likely pairs'][str(n)]:,} in {n:,}" for n in _EXAMPLES
    )
    listed = ", ".join(f"`{name}`" for name in below) or "none"
    return (
        f"{len(values) - len(below)} of {len(values)} values are met with at least "
        f"{_ENOUGH:.0%} in {_EXAMPLES[1]:,} examples; below are: {listed}. The weakest "
        f"three, in {_EXAMPLES[0]} examples: {told}. Of {counted['pairs']:,} pairs of values that "
        f"one scenario may have, so many are met with {_ENOUGH:.0%}: {pairs}."
    )


def _table(counted: dict[str, Any], samples: int) -> Iterator[str]:
    by_count = sorted(counted["values"].items(), key=lambda item: item[1])
    head = ("value", "scenarios", "met in 200", "met in 2,000")
    return table(
        head, (_row(name, count / samples, samples) for name, count in by_count)
    )


def _row(name: str, share: float, samples: int) -> list[str]:
    if not share:
        least = f"< {100 * _RULE_OF_THREE / samples:.2f} %"
        return [f"`{name}`", least, "unknown", "unknown"]
    powers = [f"{100 * met(share, n):.1f} %" for n in _EXAMPLES]
    return [f"`{name}`", f"{100 * share:.2f} %", *powers]


def main(num_samples: int = NUM_SAMPLES) -> None:
    """Sample, and write the figures and the page."""
    figures = json.dumps(sample(num_samples), indent=1)
    FIGURES.write_text(f"{figures}\n", encoding="utf-8")
    PAGE.write()


PAGE: Final = Document("docs/power.md", page, "power")

if __name__ == "__main__":
    main()
