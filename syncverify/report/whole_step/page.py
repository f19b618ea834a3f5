"""A comparison with one rank as plain JSON values and as a page: mistakes, and layouts against tensors."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from syncverify.replay_line import replay_line
from syncverify.report.account import Account, Explanation
from syncverify.report.simulation import explanation_of, pictures_of
from syncverify.report.whole_step import text
from syncverify.report.whole_step.shown import grouped_names, shown_part
from syncverify.scenario.replay_token import encode

# The smallest difference that has a shade of its own, and the range of shades in percent: that of
# 0.1 % is weak, that of 100 % strong.
_FAINT: Final = 0.001
_WEAKEST: Final = 12
_STRONGEST: Final = 60


def account_of(parity: Parity) -> Account:
    """Return the account of a comparison: its mistakes, and the violations of its plays."""
    explanations = [_mistake(parity, each) for each in parity.mistakes]
    for play in parity.plays:
        for found in play.simulation.violations:  # a race, a deadlock or a mismatch
            one = explanation_of(play.simulation, found)
            sections = [*one.sections, f"  layout:     {play.layout}"]
            facts = {**one.facts, "layout": dict(play.layout.axes)}
            explanations.append(replace(one, sections=sections, facts=facts))
    is_open = parity.refused and not explanations
    return Account(
        subject=parity.path or parity.name,
        verdict=text.verdict(parity),
        is_right=None if is_open else parity.is_right,
        explanations=explanations,
        remarks=[*map(str, parity.remarks)],
        notes=text.table(parity),
        facts={
            "steps": parity.num_steps,
            "seed": parity.seed,
            # Where an own step made the values to compare with; None for torch's plain step.
            "beside": parity.beside
            and {
                "layout": dict(parity.beside.layout.axes),
                "micro_batches": parity.beside.num_micro_batches,
            },
            "layouts": [*map(_play, parity.plays)],
        },
    )


def _play(play: LayoutPlay) -> dict[str, Any]:
    return {
        "layout": dict(play.layout.axes),
        "micro_batches": play.num_micro_batches,
        "data": None if play.variation is None else play.variation.word,
        "saved_on": None if play.saved_on is None else dict(play.saved_on.axes),
        "right": play.is_right,
        "values": play.num_values,
        "wrong_values": play.num_wrong,
        "worst_error": play.worst_error,
        "share_of_rounding": play.share_of_rounding,
        "unread": [*play.unread],
        "not_judged": [
            f"step {each.step + 1}, {each.quantity.value}, {each.name}"
            for each in play.not_judged
        ],
        "refused": play.simulation.refused,
    }


def _mistake(parity: Parity, found: FoundMistake) -> Explanation:
    finding, token = found.finding, encode(parity.play_of(found))
    is_loaded = found.saved_on is not None
    check = loading_continues_the_training if is_loaded else mesh_has_values_of_one_rank
    return Explanation(
        property=finding.quantity.value,
        cause=finding.cause.kind,
        statement=STATEMENTS[check.__name__],
        summary=text.headline(found),
        ranks=text.wrong_ranks(finding),
        parameters=[each.name for each in finding.differences],
        hint=text.change(found),
        token=token,
        replay=replay_line(token, parity.path) if parity.path else "",
        sections=[*text.sections_of(parity, found)],
        lines=found.places,
        facts={
            "step": finding.step + 1,
            "lines": [*map(str, found.places)],
            "layout": dict(found.layout.axes),
            "sizes": dict(found.sizes),
            "rows": found.num_rows,
            "micro_batches": found.num_micro_batches,
            "data": None if found.variation is None else found.variation.word,
            "saved_on": None if found.saved_on is None else dict(found.saved_on.axes),
            "layouts": [dict(each.axes) for each in found.layouts],
            "spread": [each.name for each in finding.spread],
            "follows": [each.value for each in finding.follows],
            "values": [*map(_value, finding.differences)],
        },
    )


def _value(value: ComparedValue) -> dict[str, Any]:
    part = shown_part(value)

    def listed(values: Mapping[int, torch.Tensor | None]) -> dict[str, Any]:
        return {
            str(rank): None if e is None else [*part.elements(e.double()).values()]
            for rank, e in values.items()
        }

    return {
        "name": value.name,
        "wrong_ranks": value.wrong_ranks,
        "error": value.error,
        "elements": [*part.indices],
        "observed": listed(value.got),
        "expected": listed(value.expected),
    }


def drawn(parity: Parity) -> dict[str, Any]:
    """Return the table and the pictures of a page: layouts against tensors, and runs."""
    violations = [e for play in parity.plays for e in play.simulation.violations]
    pictures = [pictures_of(each) for each in violations]
    return {
        "violations": [*({} for _ in parity.mistakes), *pictures],
        "layouts": {
            "columns": [*map(_column, parity.plays)],
            "rows": [
                {"name": name, "cells": [*map(_cell, cells)]}
                for name, cells in rows_of(parity.plays).items()
            ],
        },
    }


def _column(play: LayoutPlay) -> dict[str, str]:
    parts = text.play_words(play)
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
    error = min(max(cell.error, _FAINT), 1.0)
    size = math.log10(error / _FAINT) / -math.log10(_FAINT)
    shade = round(_WEAKEST + (_STRONGEST - _WEAKEST) * size)
    return {
        "verdict": cell.verdict,
        "text": words.get(cell.verdict, f"off by {text.percent(cell.error)}"),
        "quantity": "" if cell.quantity is None else cell.quantity.value,
        "shade": 0 if cell.error <= 0 else shade,
    }


def rows_of(plays: Sequence[LayoutPlay]) -> dict[str, tuple[LayoutCell, ...]]:
    """Return the cells of all layouts by the name of their row.

    A row has all parameters that differ in one number of their names alone, and whose cells have
    the same verdict and the same first wrong quantity.
    """
    names = [*dict.fromkeys(parameter_of(name) for e in plays for name in e.worst)]
    cells = {name: tuple(_cell_of(play, name) for play in plays) for name in names}
    alike = dict[tuple[object, ...], list[str]]()
    for name, listed in cells.items():
        kind = tuple((cell.verdict, cell.quantity) for cell in listed)
        alike.setdefault(kind, []).append(name)
    groups = [each for same in alike.values() for each in grouped_names(same).items()]
    groups.sort(key=lambda group: names.index(group[1][0]))
    return {
        group: tuple(
            max(each, key=lambda cell: cell.error)
            for each in zip(*(cells[name] for name in members), strict=True)
        )
        for group, members in groups
    }


def _cell_of(play: LayoutPlay, parameter: str) -> LayoutCell:
    worst = [each for n, each in play.worst.items() if parameter_of(n) == parameter]
    wrong = [each for each in worst if each.quantity is not None]
    if not wrong:
        return LayoutCell("right" if worst else "none")
    values = [value for finding in play.findings for value in finding.differences]
    own = [value for value in values if parameter_of(value.name) == parameter]
    if own:
        error = max(value.error for value in own)
        return LayoutCell("mistake", error, own[0].quantity)
    kinds = {each.quantity for each in wrong}
    first = next(each for each in Quantity if each in kinds)
    return LayoutCell("follows", max(each.error for each in wrong), first)
