"""No example is made from another, and failing ones are shrunk as ever."""

import itertools

from hypothesis import Phase, find, given, seed, settings
from hypothesis import strategies as st

from strategies.independence import independent

Digits = tuple[int, ...]
DIGITS: st.SearchStrategy[Digits] = st.tuples(*[st.integers(0, 99)] * 8)


def draws(backend: str, *, random_seed: int = 0) -> list[Digits]:
    drawn: list[Digits] = []

    @seed(random_seed)
    @settings(max_examples=300, database=None, phases=[Phase.generate], backend=backend)
    @given(DIGITS)
    def collect(digits: Digits) -> None:
        drawn.append(digits)

    collect()
    return drawn


def share_like_the_one_before(drawn: list[Digits]) -> float:
    """Tell how many have half of their digits from the one before, in their places."""
    pairs = list(itertools.pairwise(drawn))
    alike = [sum(map(int.__eq__, *pair)) >= len(pair[0]) / 2 for pair in pairs]
    return sum(alike) / len(alike)


def test_hypothesis_makes_examples_from_examples() -> None:
    """What we guard against; if it is gone, so may be the guard."""
    assert share_like_the_one_before(draws("hypothesis")) > 0.5


def test_independent_examples_have_nothing_of_one_another() -> None:
    drawn = draws(independent())
    assert share_like_the_one_before(drawn) == 0
    assert len(set(drawn)) == len(drawn) == 300


def test_same_seed_same_examples() -> None:
    assert draws(independent(), random_seed=7) == draws(independent(), random_seed=7)
    assert draws(independent(), random_seed=7) != draws(independent(), random_seed=8)


def test_failing_examples_are_shrunk() -> None:
    configured = settings(max_examples=300, database=None, backend=independent())
    few = st.tuples(*[st.integers(0, 99)] * 3)
    found = find(few, lambda digits: sum(digits) > 150, settings=configured)
    assert sum(found) == 151
    assert min(found) == 0
