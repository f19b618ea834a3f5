"""The execution of `syncverify explain`: print the diagnosis of an observed feature."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from syncverify.errors import UsageError
from syncverify.plain_text import counted
from syncverify.report.console import say

_EXPECTED = "expected REPORT.json#RATING/N, such as report.json#wrong/1"


def execute(place: str) -> None:
    """Print the diagnosis to which a place such as `report.json#wrong/3` points."""
    say(_diagnosis(place))


def _diagnosis(place: str) -> str:
    """Return the diagnosis; raise `UsageError` where the place leads nowhere."""
    file, _, rest = place.rpartition("#")
    rating, _, number = rest.partition("/")
    if not file or not (number.isascii() and number.isdigit()):
        raise UsageError(f"{_EXPECTED}, got {place!r}")
    listed = [each for each in _observed(Path(file)) if each.get("word") == rating]
    if not 1 <= int(number) <= len(listed):
        raise UsageError(
            f"{_EXPECTED}, but {file!r} lists {counted(len(listed), 'feature')} as {rating!r}"
        )
    chosen = listed[int(number) - 1]
    text = chosen.get("diagnosis")
    if not isinstance(text, str):
        raise UsageError(
            f"{chosen.get('feature')} is {rating!r}: there is nothing to explain"
        )
    return f"{chosen.get('feature')}, beyond the contract\n\n{text}"


def _observed(file: Path) -> list[dict[str, Any]]:
    try:
        report = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"report {str(file)!r} cannot be read: {error}") from error
    observed = report.get("beyond") if isinstance(report, dict) else None
    if not isinstance(observed, list) or not all(isinstance(e, dict) for e in observed):
        raise UsageError(f"{str(file)!r} is no report of `syncverify run --json`")
    return observed
