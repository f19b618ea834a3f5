"""Candidates for a value that one step leaves for the next: set back where a step ends.

Note [Values to set back]
    | left over | lines at the end of `zero_grad()` or `wait()` |
    |---|---|
    | `self.count` is 2, was 0 | `self.count = 0` |
    | `self.handles` holds 1 element, held 0 | `self.handles.clear()` |
    | `self.count[p0]` is 2, was 0 | a loop over keys, or indices: `self.count[each] = 0` |
    | `self.buckets[0].ready` holds 1 element | a loop over the buckets: `each.ready.clear()` |
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from syncverify.explain.repair.source_edit import Edit, Source
from syncverify.search.plain_state import LeftOver

_METHODS: Final = ("zero_grad", "wait")
_INDENT: Final = "    "


def set_back(source: Source, left_over: Iterable[LeftOver]) -> Iterator[Edit]:
    """Yield lines that set all values back; see Note [Values to set back]."""
    by_pattern = {each.pattern: each for each in left_over}
    lines = [_lines_for(each) for each in by_pattern.values()]
    if not lines or not all(lines):
        return
    together = [line for each in lines for line in each]
    for owner in ast.walk(source.tree):
        if isinstance(owner, ast.ClassDef):
            methods = {n.name: n for n in owner.body if isinstance(n, ast.FunctionDef)}
            if methods.keys() >= {*_METHODS}:
                yield from (_at_end(source, methods[n], together) for n in _METHODS)


def _lines_for(left: LeftOver) -> list[str]:
    """Return lines that set the values of one pattern back; none where there is no short way."""
    value = _value(left)
    if value is None:
        return []
    *outer, last = left.parts
    lines, place = list[str](), "self"
    for part in outer:
        if part.is_any:
            elements = f"{place}.values()" if part.kind == "key" else place
            lines.append(f"{_INDENT * len(lines)}for each in {elements}:")
            place = "each"
        else:
            place += part.text
    if last.is_any and left.is_size:
        elements = f"{place}.values()" if last.kind == "key" else place
        lines.append(f"{_INDENT * len(lines)}for each in {elements}:")
        place = "each"
    elif last.is_any:
        keys = place if last.kind == "key" else f"range(len({place}))"
        variable = "key" if last.kind == "key" else "index"
        lines.append(f"{_INDENT * len(lines)}for {variable} in {keys}:")
        place += f"[{variable}]"
    else:
        place += last.text
    return [*lines, f"{_INDENT * len(lines)}{place}{value}"]


def _value(left: LeftOver) -> str | None:
    """Return the end of a statement that sets a value back."""
    if left.is_size:
        return ".clear()" if left.before.size == 0 else None
    return f" = {left.before.word}" if left.before.is_code else None


def _at_end(source: Source, method: ast.FunctionDef, lines: list[str]) -> Edit:
    last = method.body[-1]
    if isinstance(last, ast.Pass):
        return Edit.instead(source.path, last, *lines)
    if isinstance(last, ast.Return | ast.Raise):
        return Edit.before(source.path, last, *lines)
    return Edit.after(source.path, last, *lines)
