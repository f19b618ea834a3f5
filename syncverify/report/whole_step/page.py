"""The page of a comparison with one rank: its mistakes, and layouts against tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from syncverify.faces.whole_step.outcome import FoundMistake, LayoutPlay, Parity
from syncverify.judge.whole_step.values import Quantity, parameter_of
from syncverify.report.html.render import rendered
from syncverify.report.simulation import violation_values
from syncverify.report.whole_step.shown import grouped_names
from syncverify.report.whole_step.text import (
    headline,
    line_of,
    mistake_text,
    percent,
    play_words,
    verdict,
)

# The smallest difference that has a shade of its own, and the range of shades in percent.
_FAINT: Final = 0.001
_WEAKEST: Final = 12
_STRONGEST: Final = 60


def parity_page(parity: Parity) -> str:
    """Return the page as one self-contained document."""
    violations = [
        violation_values(play.simulation, each)
        for play in parity.plays
        for each in play.simulation.violations
    ]
    mistakes = [_mistake(parity, each) for each in parity.mistakes]
    return rendered(
        {
            "subject": parity.name,
            "verdict": verdict(parity),
            "failed": not parity.is_right,
            "judged": all(not each.simulation.refused for each in parity.plays),
            "facts": [
                ["layouts", str(len(parity.plays))],
                ["steps", str(parity.num_steps)],
                ["mistakes", str(len(mistakes) + len(violations))],
            ],
            "remarks": [*map(str, parity.remarks)],
            "layouts": _layouts(parity),
            "violations": [*mistakes, *violations],
        }
    )


def _mistake(parity: Parity, found: FoundMistake) -> dict[str, Any]:
    finding = found.finding
    return {
        "property": finding.quantity.value,
        "cause": finding.cause.word,
        "statement": "Each rank has the value that one rank has.",
        "summary": headline(found),
        "diagnosis": mistake_text(parity, found),
        "replay": line_of(parity, found),
        "is_values": True,
    }


def _layouts(parity: Parity) -> dict[str, Any]:
    return {
        "columns": [*map(_column, parity.plays)],
        "rows": [
            {"name": row.name, "cells": [*map(_cell, row.cells)]}
            for row in rows_of(parity.plays)
        ],
    }


def _column(play: LayoutPlay) -> dict[str, str]:
    parts = play_words(play)
    word = "wrong" if play.findings else "right" if play.is_right else "open"
    return {"layout": str(play.layout), "parts": parts, "verdict": word}


def _cell(cell: LayoutCell) -> dict[str, Any]:
    quantity = "" if cell.quantity is None else cell.quantity.value
    text = {
        LayoutVerdict.NONE: "not compared",
        LayoutVerdict.RIGHT: "right",
        LayoutVerdict.MISTAKE: f"off by {percent(cell.error)}",
        LayoutVerdict.FOLLOWS: f"off by {percent(cell.error)}",
    }
    return {
        "verdict": cell.verdict.value,
        "text": text[cell.verdict],
        "quantity": quantity,
        "shade": _shade(cell.error),
    }


def _shade(error: float) -> int:
    """Return how strong the color of a difference is, in percent: 0.1 % is weak, 100 % strong."""
    if error <= 0:
        return 0
    size = math.log10(min(max(error, _FAINT), 1.0) / _FAINT) / -math.log10(_FAINT)
    return round(_WEAKEST + (_STRONGEST - _WEAKEST) * size)


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
    cells = {name: tuple(_cell_of(play, name) for play in plays) for name in names}
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


def _cell_of(play: LayoutPlay, parameter: str) -> LayoutCell:
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
