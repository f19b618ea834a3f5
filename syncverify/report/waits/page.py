"""The page of the answers about waits."""

from __future__ import annotations

from typing import Any

from syncverify.report.html.render import rendered
from syncverify.report.waits.text import COLUMNS, bound_lines, cells_of, verdict
from syncverify.waits.answers import NEED_WORDS, Answer, AnsweredWaits


def waits_page(waits: AnsweredWaits) -> str:
    """Return the page as one self-contained document."""
    return rendered(
        {
            "subject": waits.names,
            "verdict": verdict(waits),
            "failed": False,
            # Green says that nothing is to do: a superfluous wait is to be removed.
            "judged": len(waits.with_word("needed")) == len(waits.answers),
            "facts": [[word, str(len(waits.with_word(word)))] for word in NEED_WORDS],
            "remarks": [*bound_lines(waits)],
            "violations": [],
            "waits": {
                "columns": [*COLUMNS],
                "num_superfluous": len(waits.with_word("superfluous")),
                "rows": [*map(_row, waits.answers)],
            },
        }
    )


def _row(answer: Answer) -> dict[str, Any]:
    _, *others = cells_of(answer)
    return {
        "place": str(answer.point.line),
        "code": answer.code,
        "cells": others,
        "word": answer.word,
    }
