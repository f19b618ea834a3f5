"""Sample scenarios, and write how likely a search meets each feature: `python -m studies.pages.power`.

A defect whose trigger is one feature is met by each scenario that has it. Scenarios of a search
are drawn independently, so that n of them miss a feature with probability (1 - p)^n, where p is
the share of scenarios that have it. The last twentieth of a search belongs to the values that it
has missed. It meets one with probability q, so n examples miss it with (1 - p)^(0.95 n) (1 - q).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from hypothesis import Phase

from studies.documents import Document, days, table
from studies.rows import RESULTS, RowFile, today
from syncverify.scenario.contract import EVERYTHING, PLAIN_CONTRACT, Capabilities
from syncverify.scenario.contributions import magnitude
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.feature_row import Feature, base_word, variant
from syncverify.scenario.feature_table import MANY, TABLE, WORDS
from syncverify.scenario.layout import reduce_axes
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.settings import DEFAULT_RANKS
from syncverify.scenario.space import Space
from syncverify.search.drawing import Drawing, EndedError
from syncverify.search.judge import Draw
from syncverify.search.missing_values import num_reserved, scenarios_of_missing_values

CONTRACTS: Final = {"plain": PLAIN_CONTRACT, "everything": EVERYTHING}
NUM_SAMPLES = 4000
NUM_SEARCHES = 60
_SEED = 0
_EXAMPLES = (200, 2000)
_ENOUGH = 0.95
_MOST_RANKS: Final = 8  # of the feature size=many ranks
_TINY: Final = "reduced gradients below 2^-24"
_LEAST_OF_FLOAT16: Final = 2.0**-24
# What m of n never did has a share below m + 3 in n, with 95 % confidence: (1 - 3/n)^n is 5 %.
_RULE_OF_THREE = 3


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a contract, and how often scenarios and searches have it.

    Attributes:
        contract: Name of the contract.
        value: Name of the value.
        date: Day of the sampling.
        samples: Number of scenarios that were drawn.
        count: Number of those that have the value.
        searches: Number of searches that were drawn.
        missing: Number of those that lack it before their last twentieth.
        still_missing: Number of those that lack it in the end.
    """

    contract: str
    value: str
    date: str
    samples: int
    count: int
    searches: int
    missing: int = 0
    still_missing: int = 0

    @property
    def share_last(self) -> float:
        """A lower limit of the share of last twentieths that meet it where it is missing."""
        lost = self.still_missing + _RULE_OF_THREE
        return max(0.0, 1 - lost / self.missing) if self.missing else 0.0

    def power(self, num_examples: int) -> float:
        """Return the probability that a search of some examples meets it."""
        return met(self.count / self.samples, num_examples, self.share_last)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of values of a contract that one scenario may have.

    Attributes:
        contract: Name of the contract.
        date: Day of the sampling.
        pairs: Number of pairs.
        likely_in_200: Number of those that a search of 200 examples meets with 95 %.
        likely_in_2000: The same of 2,000 examples.
    """

    contract: str
    date: str
    pairs: int
    likely_in_200: int
    likely_in_2000: int


VALUES: Final = RowFile(RESULTS / "power.jsonl", Value, ("contract", "value"))
PAIRS: Final = RowFile(RESULTS / "power_pairs.jsonl", Pairs, ("contract",))


def sample(
    contract: str, num_samples: int, num_searches: int
) -> tuple[list[Value], Pairs]:
    """Draw scenarios and searches of a contract, and count the values that they have."""
    values, pairs = _counts(contract, num_samples)
    before, after = _last_counts(CONTRACTS[contract], num_searches)
    rows = [
        Value(
            *(contract, name, today(), num_samples, count),
            *(num_searches, before[name], after[name]),
        )
        for name, count in values.items()
    ]
    return rows, pairs


def _last_counts(
    capabilities: Capabilities, num_searches: int
) -> tuple[Counter[str], Counter[str]]:
    """Count the searches that lack a value, before their last twentieth and after it."""
    before, after = Counter[str](), Counter[str]()
    for seed in range(_SEED + 1, _SEED + 1 + num_searches):
        first, last = drawn_search(capabilities, _EXAMPLES[0], seed)
        before.update(map(str, first))
        after.update(map(str, last))
    return before, after


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


def _counts(contract: str, num_samples: int) -> tuple[dict[str, int], Pairs]:
    """Count values and pairs of values; a value of the space that never occurs counts 0."""
    capabilities = CONTRACTS[contract]
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
    likely = (sum(met(share, n) >= _ENOUGH for share in shares) for n in _EXAMPLES)
    found_pairs = Pairs(contract, today(), len(shares), *likely)
    return {name: values[name] for name in listed}, found_pairs


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


def page() -> str:
    """Return the figures of each contract."""
    head = ("contract", "values", "met in 2,000", "weakest in 200")
    rows = VALUES.read()
    cells = (_cells(pairs, rows) for pairs in PAIRS.read())
    extent = (
        f"Each contract: {rows[0].samples:,} scenarios, up to {DEFAULT_RANKS} ranks, seed {_SEED}, and "
        f"{rows[0].searches} searches of {_EXAMPLES[0]} examples, drawn {days(rows)}. *Met* is with at "
        f"least {_ENOUGH:.0%}."
    )
    pairs = ("pairs", *(f"met in {number:,}" for number in _EXAMPLES))
    return "\n".join([extent, "", *table((*head, *pairs), cells)])


def _cells(pairs: Pairs, rows: Sequence[Value]) -> Iterator[object]:
    own = [row for row in rows if row.contract == pairs.contract]
    yield from (pairs.contract, len(own))
    yield sum(row.power(_EXAMPLES[1]) >= _ENOUGH for row in own)
    weakest = sorted(own, key=lambda row: (row.power(_EXAMPLES[0]), row.value))[:3]
    yield ", ".join(
        f"`{row.value}` ({100 * row.power(_EXAMPLES[0]):.1f} %)" for row in weakest
    )
    yield from (pairs.pairs, pairs.likely_in_200, pairs.likely_in_2000)


def main(num_samples: int = NUM_SAMPLES, num_searches: int = NUM_SEARCHES) -> None:
    """Sample, and write the figures and the page."""
    values = list[Value]()
    for contract in CONTRACTS:
        found, pairs = sample(contract, num_samples, num_searches)
        values += found
        PAIRS.put(pairs)
    VALUES.write(values)
    PAGE.write()


PAGE: Final = Document("docs/how-we-know.md", page, "power")

if __name__ == "__main__":
    main()
