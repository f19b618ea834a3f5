"""Sides of pairs: which ones have to be played, and the report of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from studies.timemachine.pairs import Pair, table
from studies.timemachine.playing import Played
from studies.timemachine.releases import Releases
from studies.timemachine.results import needs, played_side, stored
from studies.timemachine.round import Round


@dataclass(frozen=True, slots=True)
class Side:
    """A side of a pair.

    Attributes:
        pair: Name of the pair.
        name: Name of the side.
    """

    pair: str
    name: str


def missing(pair: Pair, round_: Round | None, *, is_named: bool) -> Iterator[Side]:
    """Yield the sides of a pair that have to be played.

    Args:
        pair: The pair.
        round_: The round that plays all pairs again; None where stored sides count.
        is_named: Whether the user has named the pair: then all sides are played.
    """
    known = stored().get(pair.name, {})
    for name in pair.sides:
        if round_:
            is_missing = not round_.has(pair.name, name)
        else:
            is_missing = is_named or needs(known, pair, name)
        if is_missing:
            yield Side(pair.name, name)


def played_of(side: Side, cache: Path) -> Played | str:
    """Play a side; return why there is no report, if there is none: the next one may be played."""
    try:
        return played_side(table()[side.pair], side.name, Releases(cache))
    except click.ClickException as error:
        return error.format_message()
