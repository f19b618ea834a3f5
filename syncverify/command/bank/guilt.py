"""The guilty lines of an entry, by its difference from its fixed twin; are they shown?

Note [Guilty lines]
    A line of the defect that its twin has not is guilty. Where the defect lacks lines, the
    function that lacks them is, and the functions of the same classes that call it: there the
    work is missing. Methods are compared by name, whichever class of the bank has them.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

from syncverify.search.found_violation import FoundViolation
from syncverify.subjects.bugbank.entry import Entry

# File and number of a line.
Place = tuple[str, int]


def shows_guilty_line(entry: Entry, found: FoundViolation) -> bool:
    """Tell whether a report names a line of which the entry is guilty, or changes one."""
    named = {(line.file, line.number) for line in found.lines}
    if found.fix is not None:
        place = found.fix.place
        numbers = range(place.number, place.number + max(found.fix.num_removed, 1))
        named |= {(place.file, number) for number in numbers}
    return not named.isdisjoint(guilty_lines(entry))


def guilty_lines(entry: Entry) -> set[Place]:
    """Return the guilty lines of an entry; see Note [Guilty lines]."""
    subject, right = entry.subject, entry.twin
    assert right is not None, "each entry of the bank has a twin"
    found = set[Place]()
    for name in sorted({*_own_methods(subject), *_own_methods(right)}):
        defect, twin = _lines(subject, name), _lines(right, name)
        if [text for _, text in defect] == [text for _, text in twin]:
            continue
        found |= {*_changed(defect, twin)}
        if _num_statements(subject, name) < _num_statements(right, name):
            found |= {place for place, _ in defect}
            found |= {*_calls(subject, name)}
    return found


def _own_methods(owner: type[Any]) -> list[str]:
    return [name for name, value in vars(owner).items() if inspect.isfunction(value)]


def _lines(owner: type[Any], name: str) -> list[tuple[Place, str]]:
    """Return the lines of a method with their places; none if a class has no such method."""
    method = getattr(owner, name, None)
    if not inspect.isfunction(method):
        return []
    texts, first = inspect.getsourcelines(method)
    path = inspect.getsourcefile(method) or ""
    return [((path, first + n), text.strip()) for n, text in enumerate(texts)]


def _num_statements(owner: type[Any], name: str) -> int:
    """Count the statements of a method that do something, nested ones included."""
    method = getattr(owner, name, None)
    if not inspect.isfunction(method):
        return 0
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(method))).body
    return sum(
        isinstance(node, ast.stmt)
        and not isinstance(node, ast.Pass)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in ast.walk(function)
    )


def _changed(
    defect: list[tuple[Place, str]], twin: list[tuple[Place, str]]
) -> Iterator[Place]:
    texts = [text for _, text in defect], [text for _, text in twin]
    matcher = difflib.SequenceMatcher(None, *texts, autojunk=False)
    for kind, start, end, _, _ in matcher.get_opcodes():
        if kind in {"delete", "replace"}:  # lines of the defect that the twin has not
            yield from (place for place, _ in defect[start:end])
        elif kind == "insert":  # lines are missing between two of the defect
            yield from (place for place, _ in defect[max(0, start - 1) : start + 1])


def _calls(owner: type[Any], name: str) -> Iterator[Place]:
    """Yield the lines of the methods of a class and its bases that call a method."""
    for base in owner.__mro__[:-1]:
        for caller in _own_methods(base):
            lines = _lines(base, caller)
            if any(f".{name}(" in text for _, text in lines):
                yield from (place for place, _ in lines)
