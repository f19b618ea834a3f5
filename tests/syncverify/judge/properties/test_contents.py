"""Gradients that meet in a collective, by their values."""

import pytest

from syncverify.judge.properties.contents import Places, _crossed


@pytest.mark.parametrize(
    ("own", "theirs", "crossed"),
    [
        ({("a", 0), ("b", 1)}, {("b", 0), ("a", 1)}, [0]),
        ({("a", 0), ("b", 1)}, {("a", 0), ("b", 1)}, []),
        ({("a", 0)}, {("b", 1)}, []),
        ({("a", 0), ("b", 0)}, {("b", 0)}, []),  # a number that is equal by chance
        (None, {("b", 0)}, []),
    ],
)
def test_a_gradient_meets_another_one_where_both_are_known_and_none_is_common(
    own: set[tuple[str, int]] | None,
    theirs: set[tuple[str, int]],
    crossed: list[int],
) -> None:
    mine: Places = None if own is None else frozenset(own)
    assert [*_crossed("a", mine, frozenset(theirs))] == crossed
