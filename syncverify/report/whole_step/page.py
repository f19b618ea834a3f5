"""The page of a comparison with one rank: its mistakes, and layouts against tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

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
    rows = rows_of(parity.plays)
    return {
        "columns": [*map(_column, parity.plays)],
        "rows": [{"name": e, "cells": [*map(_cell, rows[e])]} for e in rows],
    }


def _column(play: LayoutPlay) -> dict[str, str]:
    parts = play_words(play)
    word = "wrong" if play.findings else "right" if play.is_right else "open"
    return {"layout": str(play.layout), "parts": parts, "verdict": word}


class LayoutCell(NamedTuple):
    """A parameter on a layout: a mistake, or what follows from one, or right, or not compared."""

    verdict: Literal["right", "mistake", "follows", "none"]
    # Largest difference of a wrong element, as a part of the tensor's largest one.
    error: float = 0.0
    quantity: Quantity | None = None  # the first wrong one


def _cell(cell: LayoutCell) -> dict[str, Any]:
    words = {"none": "not compared", "right": "right"}
    return {
        "verdict": cell.verdict,
        "text": words.get(cell.verdict, f"off by {percent(cell.error)}"),
        "quantity": "" if cell.quantity is None else cell.quantity.value,
        "shade": _shade(cell.error),
    }


def _shade(error: float) -> int:
    """Return how strong the color of a difference is, in percent: 0.1 % is weak, 100 % strong."""
    if error <= 0:
        return 0
    size = math.log10(min(max(error, _FAINT), 1.0) / _FAINT) / -math.log10(_FAINT)
    return round(_WEAKEST + (_STRONGEST - _WEAKEST) * size)


def rows_of(plays: Sequence[LayoutPlay]) -> dict[str, tuple[LayoutCell, ...]]:
    """Return the cells of all layouts by the name of their row.

    A row has all parameters that differ in one number of their names alone, and whose cells have
    the same verdict and the same first wrong quantity.
    """
    names = dict.fromkeys(parameter_of(name) for play in plays for name in play.worst)
    cells = {name: tuple(_cell_of(play, name) for play in plays) for name in names}
    alike = dict[tuple[object, ...], list[str]]()
    for name, listed in cells.items():
        kind = tuple((cell.verdict, cell.quantity) for cell in listed)
        alike.setdefault(kind, []).append(name)
    groups = [each for same in alike.values() for each in grouped_names(same).items()]
    groups.sort(key=lambda group: [*names].index(group[1][0]))
    return {
        group: tuple(
            max(each, key=lambda cell: cell.error)
            for each in zip(*(cells[name] for name in members), strict=True)
        )
        for group, members in groups
    }


def _cell_of(play: LayoutPlay, parameter: str) -> LayoutCell:
    worst = [each for n, each in play.worst.items() if parameter_of(n) == parameter]
    if not worst:
        return LayoutCell("none")
    wrong = [each for each in worst if each.quantity is not None]
    if not wrong:
        return LayoutCell("right")
    own = [
        value
        for finding in play.findings
        for value in finding.differences
        if parameter_of(value.name) == parameter
    ]
    if own:
        error = max(value.error for value in own)
        return LayoutCell("mistake", error, own[0].quantity)
    kinds = [*Quantity]
    first = min((e.quantity for e in wrong if e.quantity), key=kinds.index)
    return LayoutCell("follows", max(each.error for each in wrong), first)
