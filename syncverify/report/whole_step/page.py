"""The page of a comparison with one rank: its mistakes, and layouts against tensors."""

from __future__ import annotations

import math
from typing import Any, Final

from syncverify.report.html.render import rendered
from syncverify.report.simulation.page import violation_values
from syncverify.report.simulation.text import remark
from syncverify.report.whole_step.layout_table import LayoutCell, LayoutVerdict, rows_of
from syncverify.report.whole_step.text import (
    headline,
    mistake_text,
    percent,
    play_words,
    replay_line,
    verdict,
)
from syncverify.whole_step.outcome import FoundMistake, LayoutPlay, Parity

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
            "remarks": [*map(remark, parity.remarks)],
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
        "replay": replay_line(parity, found),
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
