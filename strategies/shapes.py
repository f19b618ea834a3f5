"""The strategy for tensor shapes."""

import functools
import itertools
import math

from hypothesis import strategies as st

from syncverify.scenario.feature_table import TABLE
from syncverify.strategies.weights import with_rare

_EMPTY = [(0,), (0, 2), (3, 0), (2, 0, 3), (0, 0)]
_EMPTY_OF_4_DIMS = (2, 0, 1, 3)


@functools.cache
def shapes(
    *, scalars: bool = True, four_dims: bool = False, empty: bool = False
) -> st.SearchStrategy[tuple[int, ...]]:
    """Generate tensor shapes; shrinks toward few elements, then few dims.

    Args:
        scalars: Whether a shape may have no dims.
        four_dims: Whether a few shapes have four or five dims. All others have up to three.
        empty: Whether a few shapes have no elements.
    """
    by_dims: list[list[tuple[int, ...]]] = [
        [()],
        [(1,), (2,), (3,), (4,), (5,), (7,), (17,)],
        list(itertools.product((1, 2, 3, 4, 5, 7), repeat=2)),
        list(itertools.product((1, 2, 3, 5), repeat=3)),
    ]
    usual = _evenly(by_dims if scalars else by_dims[1:])
    long: list[tuple[int, ...]] = [*itertools.product((1, 2, 3), repeat=4)]
    long += itertools.product((1, 2), repeat=5)
    none = [*_EMPTY, _EMPTY_OF_4_DIMS] if four_dims else _EMPTY
    rare = [_evenly([long]) if four_dims else [], none if empty else []]
    return with_rare(usual, *rare, one_in=TABLE["shape"].one_in)


def _evenly(kinds: list[list[tuple[int, ...]]]) -> list[tuple[int, ...]]:
    """Repeat shapes so that each kind has about equal weight; the smallest shapes first."""
    most = max(map(len, kinds))
    listed = [shape for kind in kinds for shape in kind * (most // len(kind))]
    return sorted(listed, key=lambda s: (math.prod(s), len(s), s))
