"""Layouts that agree with each other, and not with one rank."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

from syncverify.faces.whole_step.comparing import is_apart
from syncverify.faces.whole_step.outcome import LayoutPlay
from syncverify.faces.whole_step.training import Training
from syncverify.judge.whole_step.differences import OneRank, compared
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.one_rank import as_one_rank
from syncverify.judge.whole_step.values import RankValues


class PlayedLayout(NamedTuple):
    """A layout, and the values of each of its ranks."""

    layout: Layout
    ranks: Sequence[RankValues]


def outvoting(plays: Sequence[LayoutPlay], training: Training) -> Layout | None:
    """Return a layout that agrees with another one where none agrees with one rank.

    One mistake may be in all layouts with a size of an axis, and they agree then. So layouts
    count only if no axis has the same number of ranks, above one, in both.

    Args:
        plays: Plays beside one rank.
        training: The training.

    Returns:
        The layout; None where one rank is not the odd one out, or `own` is a function, which
        cannot be reversed.
    """
    large = [
        each
        for each in plays
        if each.variation is None
        and each.saved_on is None
        and each.layout.num_ranks > 1
        and each.num_values
    ]
    if callable(training.own) or any(each.is_right for each in large):
        return None
    played = [PlayedLayout(each.layout, each.simulation.results) for each in large]
    agreeing = (
        one.layout
        for one, other in permutations(played, 2)
        if not {*_large_axes(one.layout)} & {*_large_axes(other.layout)}
        and _agree(one, one, training)
        and _agree(one, other, training)
    )
    return next(agreeing, None)


def _large_axes(layout: Layout) -> list[tuple[str, int]]:
    return [(name, size) for name, size in layout.axes if size > 1]


def _agree(one: PlayedLayout, other: PlayedLayout, training: Training) -> bool:
    """Tell whether the values of one layout are those of another one."""
    reference = OneRank(as_one_rank(one.ranks, one.layout, training.own))
    values = compared(other.ranks, reference, other.layout, training.own)
    return not any(each.wrong_ranks and not is_apart(each) for each in values)
