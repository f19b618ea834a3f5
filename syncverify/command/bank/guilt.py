"""The guilty lines of an entry, by its difference from its fixed twin; are they shown?

Note [Guilty lines]
    A line of the defect that its twin has not is guilty. Where the defect lacks lines, the
    function that lacks them is, and each line of the same classes that calls it: there the
    work is missing. Methods are compared by name, whichever class of the bank has them.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from syncverify.bugbank.entry import Entry

# File and number of a line.
Place = tuple[str, int]
_PLACE = re.compile(r"(\S+\.py):(\d+) in ")


def shows_guilty_line(entry: Entry, text: str) -> bool:
    """Tell whether a report names a line of which the entry is guilty."""
    named = {(str(Path(p).absolute()), int(n)) for p, n in _PLACE.findall(text)}
    return not named.isdisjoint(guilty_lines(entry))


def guilty_lines(entry: Entry) -> set[Place]:
    """Return the guilty lines of an entry; see Note [Guilty lines]."""
    names = {*_own_methods(entry.subject), *_own_methods(entry.twin)}
    found = set[Place]()
    for name in sorted(names):
        defect, twin = _lines(entry.subject, name), _lines(entry.twin, name)
        if [text for _, text in defect] == [text for _, text in twin]:
            continue
        found |= {*_changed(defect, twin)}
        if not defect or len(defect) < len(twin):
            found |= {place for place, _ in defect}
            found |= {*_calls(entry.subject, name)}
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
    """Yield the lines of a class and its bases that call a method."""
    for base in owner.__mro__[:-1]:
        texts, first = inspect.getsourcelines(base)
        path = inspect.getsourcefile(base) or ""
        for number, text in enumerate(texts, start=first):
            if f".{name}(" in text:
                yield path, number
