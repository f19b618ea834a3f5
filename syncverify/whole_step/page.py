"""The page of a comparison with one rank: its mistakes, and layouts against tensors."""

from __future__ import annotations

from typing import Any

from syncverify.report.html.render import rendered
from syncverify.simulation.page import violation_values
from syncverify.whole_step.outcome import (
    Comparison,
    FoundMistake,
    LayoutPlay,
    WorstError,
)
from syncverify.whole_step.text import (
    headline,
    mistake_text,
    replay_line,
    verdict,
)


def page_of(comparison: Comparison) -> str:
    """Return the page as one self-contained document."""
    violations = [
        violation_values(play.simulation, each)
        for play in comparison.plays
        for each in play.simulation.violations
    ]
    mistakes = [_mistake(comparison, each) for each in comparison.mistakes]
    return rendered(
        {
            "subject": comparison.name,
            "verdict": verdict(comparison),
            "failed": not comparison.is_right,
            "judged": all(not each.simulation.refused for each in comparison.plays),
            "facts": [
                ["layouts", str(len(comparison.plays))],
                ["steps", str(comparison.num_steps)],
                ["mistakes", str(len(mistakes) + len(violations))],
            ],
            "explored": None,
            "timeline": None,
            "layouts": _layouts(comparison),
            "violations": [*mistakes, *violations],
        }
    )


def _mistake(comparison: Comparison, found: FoundMistake) -> dict[str, Any]:
    finding = found.finding
    return {
        "property": finding.quantity.value,
        "cause": finding.cause.word,
        "statement": "Each rank has the value that one rank has.",
        "summary": headline(found),
        "diagnosis": mistake_text(comparison, found),
        "replay": replay_line(comparison, found),
        "timeline": None,
        "is_values": True,
        "gradients": [],
        "witness": [],
        "graph": None,
    }


def _layouts(comparison: Comparison) -> dict[str, Any]:
    names = dict.fromkeys(name for play in comparison.plays for name in play.worst)
    return {
        "columns": [*map(_column, comparison.plays)],
        "rows": [
            {
                "name": name,
                "cells": [_cell(play.worst.get(name)) for play in comparison.plays],
            }
            for name in names
        ],
    }


def _column(play: LayoutPlay) -> str:
    word = "" if play.variation is None else f" {play.variation.word}"
    return f"{play.layout}{word}"


def _cell(worst: WorstError | None) -> dict[str, Any]:
    if worst is None:
        return {"wrong": False, "text": "-"}
    if worst.quantity is None:
        return {
            "wrong": False,
            "text": f"{worst.error:.0e}" if worst.error else "equal",
        }
    text = f"{worst.error:.0e} {worst.quantity.value}"
    return {"wrong": True, "text": text}
