"""A comparison with one rank as plain JSON values."""

from __future__ import annotations

import math
from typing import Any

import torch

from syncverify.faces.whole_step.outcome import FoundMistake, LayoutPlay, Parity
from syncverify.faces.whole_step.training import Beside
from syncverify.judge.whole_step.differences import ComparedValue
from syncverify.report.simulation import simulation_json
from syncverify.report.whole_step.shown import ShownPart, shown_part
from syncverify.report.whole_step.text import change, headline, line_of, said
from syncverify.scenario.replay_token import encode


def parity_json(parity: Parity) -> dict[str, Any]:
    """Return a report as plain JSON values."""
    return {
        "name": parity.name,
        "path": parity.path,
        "steps": parity.num_steps,
        "seed": parity.seed,
        "right": parity.is_right,
        "beside": _beside(parity.beside),
        "layouts": [*map(_play, parity.plays)],
        "remarks": [*map(str, parity.remarks)],
        "mistakes": [_mistake(parity, each) for each in parity.mistakes],
    }


def _beside(beside: Beside | None) -> dict[str, Any] | None:
    """Return where an own step made the values to compare with; None for torch's plain step."""
    if beside is None:
        return None
    number = beside.num_micro_batches
    return {"layout": dict(beside.layout.axes), "micro_batches": number}


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


def _mistake(parity: Parity, found: FoundMistake) -> dict[str, Any]:
    finding = found.finding
    return {
        "quantity": finding.quantity.value,
        "step": finding.step + 1,
        "cause": finding.cause.word,
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
