"""Edits that operators propose: new text in the place of one node or of a few neighbours."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from studies.mutants.source import Source

Node = ast.expr | ast.stmt


@dataclass(frozen=True, slots=True)
class Edit:
    """New text for part of a file.

    Attributes:
        first: The first node that is replaced.
        text: The new text.
        last: The last node that is replaced; None for one node.
    """

    first: Node
    text: str
    last: Node | None = None


# Proposes edits of one node; the name of the function is the name of the mistake.
Operator = Callable[[Source, str, ast.AST], Iterator[Edit]]


def dropped(node: Node) -> Edit:
    """Replace a statement by `pass`."""
    return Edit(node, "pass")


def swapped(source: Source, first: ast.stmt, second: ast.stmt) -> Edit:
    """Execute two neighbours in the other order."""
    between = source.text[source.end(first) : source.start(second)]
    indent = " " * first.col_offset
    gap = between if not between.strip() else f"\n{indent}"
    text = f"{source.segment(second)}{gap}{source.segment(first)}"
    return Edit(first, text, second)


def called(node: ast.AST) -> str:
    """Return the name of the function or method that a call, or its statement, calls."""
    if isinstance(node, ast.Expr):
        node = node.value
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def neighbours(node: ast.AST) -> Iterator[tuple[ast.stmt, ast.stmt]]:
    """Yield each statement of a block with the one after it."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            statements = [entry for entry in block if isinstance(entry, ast.stmt)]
            yield from pairwise(statements)
