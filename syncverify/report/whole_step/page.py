"""A comparison with one rank as plain JSON values and as a page: mistakes, and layouts against tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import torch

from syncverify.faces.whole_step.outcome import FoundMistake, LayoutPlay, Parity
from syncverify.judge.properties.registry import STATEMENTS
from syncverify.judge.properties.trainings import (
    loading_continues_the_training,
    mesh_has_values_of_one_rank,
)
from syncverify.judge.whole_step.differences import ComparedValue
from syncverify.judge.whole_step.values import Quantity, parameter_of
from syncverify.report.html.render import rendered
from syncverify.report.simulation import simulation_json, violation_values
from syncverify.report.whole_step.shown import ShownPart, grouped_names, shown_part
from syncverify.report.whole_step.text import (
    change,
    headline,
    line_of,
    mistake_text,
    percent,
    play_words,
    said,
    verdict,
)
from syncverify.scenario.replay_token import encode

# The smallest difference that has a shade of its own, and the range of shades in percent.
_FAINT: Final = 0.001
_WEAKEST: Final = 12
_STRONGEST: Final = 60


def parity_json(parity: Parity) -> dict[str, Any]:
    """Return a report as plain JSON values."""
    return {
        "name": parity.name,
        "path": parity.path,
        "steps": parity.num_steps,
        "seed": parity.seed,
        "right": parity.is_right,
        # Where an own step made the values to compare with; None for torch's plain step.
        "beside": parity.beside
        and {
            "layout": dict(parity.beside.layout.axes),
            "micro_batches": parity.beside.num_micro_batches,
        },
        "layouts": [*map(_play, parity.plays)],
        "remarks": [*map(str, parity.remarks)],
        "mistakes": [_mistake_json(parity, each) for each in parity.mistakes],
    }


def _play(play: LayoutPlay) -> dict[str, Any]:
    return {
        "layout": dict(play.layout.axes),
        "micro_batches": play.num_micro_batches,
        "data": None if play.variation is None else play.variation.word,
        "saved_on": None if play.saved_on is None else dict(play.saved_on.axes),
        "right": play.is_right,
        "values": play.num_values,
        "wrong_values": play.num_wrong,
        "worst_error": _finite(play.worst_error),
        "share_of_rounding": play.share_of_rounding,
        "unread": [*play.unread],
        "not_judged": [
            f"step {each.step + 1}, {each.quantity.value}, {each.name}"
            for each in play.not_judged
        ],
        "simulation": simulation_json(play.simulation),
    }


def _mistake_json(parity: Parity, found: FoundMistake) -> dict[str, Any]:
    finding = found.finding
    return {
        "quantity": finding.quantity.value,
        "step": finding.step + 1,
        "cause": finding.cause.kind,
        "summary": headline(found),
        "said": said(finding),
        "remedy": change(found),
        "places": [{"path": e.path, "line": e.number} for e in found.places],
        "layout": dict(found.layout.axes),
        "micro_batches": found.num_micro_batches,
        "data": None if found.variation is None else found.variation.word,
        "saved_on": None if found.saved_on is None else dict(found.saved_on.axes),
        "layouts": [dict(each.axes) for each in found.layouts],
        "spread": [each.name for each in finding.spread],
        "follows": [each.value for each in finding.follows],
        "values": [*map(_value, finding.differences)],
        "token": encode(parity.play_of(found)),
        "replay": line_of(parity, found) if parity.path else "",
    }


def _value(value: ComparedValue) -> dict[str, Any]:
    part = shown_part(value)
    return {
        "name": value.name,
        "wrong_ranks": value.wrong_ranks,
        "error": _finite(value.error),
        "elements": [*part.indices],
        "got": {str(rank): _elements(each, part) for rank, each in value.got.items()},
        "expected": {
            str(rank): _elements(each, part) for rank, each in value.expected.items()
        },
    }


def _finite(number: float) -> float | None:
    """Return a number; None for infinity, which JSON has not."""
    return number if math.isfinite(number) else None


def _elements(value: torch.Tensor | None, part: ShownPart) -> list[str] | None:
    """Return some elements as texts, since JSON has neither NaN nor infinity."""
    if value is None:
        return None
    return [f"{each:.17g}" for each in part.elements(value.double()).values()]


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
            "layouts": {
                "columns": [*map(_column, parity.plays)],
                "rows": [
                    {"name": name, "cells": [*map(_cell, cells)]}
                    for name, cells in rows_of(parity.plays).items()
                ],
            },
            "violations": [*mistakes, *violations],
        }
    )


def _mistake(parity: Parity, found: FoundMistake) -> dict[str, Any]:
    finding = found.finding
    is_loaded = found.saved_on is not None
    check = loading_continues_the_training if is_loaded else mesh_has_values_of_one_rank
    return {
        "property": finding.quantity.value,
        "cause": finding.cause.kind,
        "statement": STATEMENTS[check.__name__],
        "summary": headline(found),
        "diagnosis": mistake_text(parity, found),
        "replay": line_of(parity, found),
        "is_values": True,
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
