"""A report of one violation in a bounded number of lines: long lists end in "... and N more"."""

from __future__ import annotations

from collections.abc import Sequence

MAX_LINES = 60


def fitted(
    sections: Sequence[list[str] | str], num_lines: int = MAX_LINES
) -> list[str]:
    """Join lines and lists of lines; cut the longest lists until all of it fits.

    Returns:
        The lines. Single lines are never cut, and each list keeps its first two lines, so
        that many lists may still be longer than `num_lines`.
    """
    lists = [section for section in sections if isinstance(section, list)]
    room = num_lines - (len(sections) - len(lists))
    limit = _limit([len(each) for each in lists], room)
    lines = list[str]()
    for section in sections:
        lines += [section] if isinstance(section, str) else _cut(section, limit)
    return lines


def _limit(lengths: list[int], room: int) -> int:
    """Return the largest length of a list with which all lists fit."""
    limit = max(lengths, default=0)
    while limit > 3 and sum(min(length, limit) for length in lengths) > room:
        limit -= 1
    return limit


def _cut(lines: list[str], limit: int) -> list[str]:
    if len(lines) <= limit:
        return lines
    kept = lines[: limit - 1]
    indent = " " * (len(lines[-1]) - len(lines[-1].lstrip()))
    return [*kept, f"{indent}... and {len(lines) - len(kept)} more"]
