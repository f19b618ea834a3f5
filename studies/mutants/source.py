"""One file of the synchronizer as text and tree, and the places for mistakes in it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from studies.mutants.targets import LEFT_OUT_FUNCTIONS, LEFT_OUT_NAMES


@dataclass(frozen=True)
class Source:
    """A module of the synchronizer.

    Attributes:
        path: File, relative to the package.
        text: The whole text.
    """

    path: Path
    text: str

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        for line in self.text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return starts

    def start(self, node: ast.expr | ast.stmt) -> int:
        """Return the offset at which a node starts, in characters."""
        return self._offset(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt) -> int:
        """Return the offset at which a node ends, in characters."""
        assert node.end_lineno is not None, "parsed nodes know their end"
        assert node.end_col_offset is not None, "parsed nodes know their end"
        return self._offset(node.end_lineno, node.end_col_offset)

    def segment(self, node: ast.expr | ast.stmt) -> str:
        """Return the text of a node."""
        return self.text[self.start(node) : self.end(node)]

    def places(self) -> Iterator[tuple[str, ast.AST]]:
        """Yield the name of the function and the node of each place for a mistake."""
        for node in ast.parse(self.text).body:
            yield from _places(node, "", is_in_function=False)

    def _offset(self, line: int, column_bytes: int) -> int:
        start = self._line_starts[line - 1]
        encoded = self.text[start : self._line_starts[line]].encode()
        return start + len(encoded[:column_bytes].decode())


def _places(
    node: ast.AST, scope: str, *, is_in_function: bool
) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.Raise | ast.Assert) or _is_left_out(node):
        return
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        scope = f"{scope}.{node.name}".lstrip(".")
        is_in_function |= isinstance(node, ast.FunctionDef)
    children = _executed(node)
    if is_in_function:
        yield scope, node
    for child in children:
        yield from _places(child, scope, is_in_function=is_in_function)


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the children of a node that are executed: no decorators, no annotations."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield from node.body
        return
    for name, value in ast.iter_fields(node):
        if name != "annotation":
            items = value if isinstance(value, list) else [value]
            yield from (item for item in items if isinstance(item, ast.AST))


def _is_left_out(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name in LEFT_OUT_FUNCTIONS
    if isinstance(node, ast.If):
        return _mentions_left_out(node.test)
    if isinstance(node, ast.Expr | ast.Assign | ast.AnnAssign | ast.Return):
        return _mentions_left_out(node)
    return False


def _mentions_left_out(node: ast.AST) -> bool:
    names = (
        inner.id if isinstance(inner, ast.Name) else inner.attr
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name | ast.Attribute)
    )
    return not LEFT_OUT_NAMES.isdisjoint(names)
