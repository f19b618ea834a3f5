"""The lines that decide over the lines of a violation: conditions, numbers, attributes.

Note [Lines that decide]
    A violation shows the line that sent or wrote. The mistake is often in another method: in
    the number by which that line divides, in the condition under which it runs, in the method
    that should have set an attribute of that condition. So names of methods and attributes
    are followed, from the statements shown and the conditions around them, then from the rest
    of their functions, then from the calls that the summary names, `wait()`, which should
    have done what is missing, and `bind()`. Methods of the subject's own class come before
    those of its bases, near ones before far ones. Only the source is read: a method may be
    listed that the run did not call, and a receiver of another class counts as the subject.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from syncverify.judge.violation import Violation
from syncverify.repair.methods import Method, Methods
from syncverify.repair.source_edit import source_of
from syncverify.trace.source_lines import shown_path, with_text

_NUM_SHOWN: Final = 3
_MAX_DEPTH: Final = 4
_PLACE: Final = re.compile(r"(\S+\.py):(\d+) in ")
_CALL: Final = re.compile(r"\b(\w+)\(\)")
# Statements that a cause asks for, in the place of the one that a method ends with.
_ASKED: Final = {"stream_changed": re.compile(r"\bstream\(|set_stream\(|__enter__\(")}
# A statement, and the class in whose method it is; 0 is the subject's own class.
_Nodes = tuple[int, tuple[ast.AST, ...]]


def deciding_lines(
    violation: Violation, acts: Iterable[str], factory: object
) -> tuple[str, ...]:
    """Return up to three lines with their code; see Note [Lines that decide].

    Args:
        violation: The violation, whose evidence names lines.
        acts: More lines of the violation.
        factory: The class of the subject; another callable has no methods to follow.

    Returns:
        Lines that are not shown yet, such as `sync.py:20 in divisor: return ...`.
    """
    texts = (*_texts([violation.summary, violation.evidence]), *acts)
    places = [(path, int(n)) for text in texts for path, n in _PLACE.findall(text)]
    calls = [*_CALL.findall(violation.summary), "wait", "bind"]
    walk = _Walk(Methods(factory), places, calls)
    walk.run()
    asked = _ASKED.get(violation.cause)
    return tuple(with_text(walk.lines(asked)))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


@dataclass(slots=True)
class _Walk:
    """A walk from some lines over the methods of a class, each met once."""

    methods: Methods
    places: list[tuple[str, int]]
    calls: list[str]
    _found: list[Method] = field(default_factory=list)
    _seen: set[tuple[str, int]] = field(default_factory=set)

    def run(self) -> None:
        """Follow names from the places, then from their functions, then from calls."""
        shown = [*self._shown()]
        self._follow([(near, (*_around(node, line),)) for near, node, line in shown])
        self._follow([(near, (node,)) for near, node, _ in shown])
        for method in filter(None, map(self.methods.named, self.calls)):
            self._follow([*self._noted(method)])

    def _follow(self, level: list[_Nodes]) -> None:
        for _ in range(_MAX_DEPTH):
            level = [each for nodes in level for each in self._next(*nodes)]

    def lines(self, asked: re.Pattern[str] | None) -> list[str]:
        """Name the deciding line of each method, the likeliest first."""
        self._found.sort(key=lambda method: method.distance)  # stable: near ones first
        return [
            f"{shown_path(each.path)}:{each.deciding(asked).lineno} in {each.node.name}"
            for each in self._found[:_NUM_SHOWN]
        ]

    def _shown(self) -> Iterator[tuple[int, ast.FunctionDef, int]]:
        """Yield the distance and the function of each line that is shown, and its number."""
        for path, number in self.places:
            source = source_of(str(Path(path).absolute()))
            function = source.function_at(number) if source else None
            if source and function:
                self._seen.add((source.path, function.lineno))
                distance = self.methods.distance_of(source.path, function.lineno)
                yield distance, function, number

    def _next(self, distance: int, nodes: Iterable[ast.AST]) -> Iterator[_Nodes]:
        """Note the methods that some code names, and yield their code."""
        for node in nodes:
            for method in self.methods.named_in(node, distance):
                yield from self._noted(method)

    def _noted(self, method: Method) -> Iterator[_Nodes]:
        place = (method.path, method.node.lineno)
        if place not in self._seen:
            self._seen.add(place)
            if not method.is_inherited_blank:
                self._found.append(method)
            yield method.distance, (method.node,)


def _around(function: ast.FunctionDef, number: int) -> Iterator[ast.AST]:
    """Yield the statement of a line, then the heads of the statements around it, outwards."""
    for node in reversed([*ast.walk(function)]):
        if isinstance(node, ast.stmt) and _has(node, number) and node is not function:
            match node:
                case ast.If(test=head) | ast.While(test=head) | ast.For(iter=head):
                    yield head
                case ast.With(items=items):
                    yield from items
                case _:
                    yield node


def _has(node: ast.stmt, number: int) -> bool:
    return node.lineno <= number <= (node.end_lineno or node.lineno)
