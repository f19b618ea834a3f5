"""Layouts against tensors: each parameter on each layout, and equal layers as one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from syncverify.report.whole_step.grouped_names import grouped_names
from syncverify.whole_step.outcome import LayoutPlay
from syncverify.whole_step.values import Quantity, parameter_of


class LayoutVerdict(Enum):
    """The verdict of all values of a parameter on a layout; the value is its name."""

    RIGHT = "right"
    MISTAKE = "mistake"
    FOLLOWS = "follows"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class LayoutCell:
    """A parameter on a layout.

    Attributes:
        verdict: A mistake, or the consequence of one, or right, or not compared.
        error: Largest difference of a wrong element, as a part of the tensor's largest one; 0 where
            none is wrong.
        quantity: The first wrong quantity; None where none is wrong.
    """

    verdict: LayoutVerdict
    error: float = 0.0
    quantity: Quantity | None = None

    @property
    def kind(self) -> tuple[LayoutVerdict, Quantity | None]:
        """The part of a cell that is equal for layers in one row."""
        return self.verdict, self.quantity


@dataclass(frozen=True, slots=True)
class LayoutRow:
    """Equal parameters on all layouts.

    Attributes:
        name: Their name.
        cells: One cell for each layout.
    """

    name: str
    cells: tuple[LayoutCell, ...]


def rows_of(plays: Sequence[LayoutPlay]) -> list[LayoutRow]:
    """Return a row for all parameters that differ in one number of their names alone.

    The cells of one row have the same verdict and the same first wrong quantity.
    """
    names = dict.fromkeys(parameter_of(name) for play in plays for name in play.worst)
    cells = {name: tuple(_cell(play, name) for play in plays) for name in names}
    kinds = {
        name: tuple(each.kind for each in listed) for name, listed in cells.items()
    }
    rows = dict[str, LayoutRow]()
    for kind in dict.fromkeys(kinds.values()):
        groups = grouped_names(name for name in names if kinds[name] == kind)
        for group, members in groups.items():
            merged = zip(*(cells[name] for name in members), strict=True)
            row = LayoutRow(
                group, tuple(max(e, key=lambda cell: cell.error) for e in merged)
            )
            rows[members[0]] = row
    return [rows[name] for name in names if name in rows]


def _cell(play: LayoutPlay, parameter: str) -> LayoutCell:
    worst = [each for n, each in play.worst.items() if parameter_of(n) == parameter]
    if not worst:
        return LayoutCell(LayoutVerdict.NONE)
    wrong = [each for each in worst if each.quantity is not None]
    if not wrong:
        return LayoutCell(LayoutVerdict.RIGHT)
    own = [
        value
        for finding in play.findings
        for value in finding.differences
        if parameter_of(value.name) == parameter
    ]
    if own:
        error = max(value.error for value in own)
        return LayoutCell(LayoutVerdict.MISTAKE, error, own[0].quantity)
    kinds = [*Quantity]
    first = min((e.quantity for e in wrong if e.quantity), key=kinds.index)
    return LayoutCell(LayoutVerdict.FOLLOWS, max(each.error for each in wrong), first)
