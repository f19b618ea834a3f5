"""Candidates for any other mistake: a statement less, or a simpler expression.

Note [Small changes]
    A mistake is often something that is there and should not be: a second division, a special
    case for one rank, one step more or less in a comparison. So a statement is left out, an
    expression gives way to a part of it, a number to the attribute that other comparisons
    have in its place. `structure.py` changes cases, the order of statements, and overrides. A
    missing statement is found only by these changes. A statement that counts, communicates
    or registers hooks is never left out: a subject that does nothing breaks no rule of order.
"""

from __future__ import annotations

import ast
import copy
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from syncverify.explain.repair.near_misses import (
    near_misses,
    other_assignments,
    siblings_in,
)
from syncverify.explain.repair.source_edit import Edit, Source
from syncverify.explain.repair.structure import LIMIT, MOST_LINES, WORK, structural

_SIMPLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.Return, ast.AnnAssign)


def mutations(
    source: Source, function: ast.FunctionDef, names: Names | None = None
) -> Iterator[Edit]:
    """Yield changes of one function, those of simple expressions first.

    Args:
        source: The file.
        function: The function.
        names: Attributes of the subject that may take the place of others.

    Yields:
        Changes.
    """
    statements = [node for node in ast.walk(function) if isinstance(node, ast.stmt)][1:]
    statements.sort(key=lambda node: node.lineno)
    names = names or Names()
    for node in statements:
        for edit in _simpler(source.path, node, names):
            if not LIMIT.search("\n".join((*edit.lines, _head(node)))):
                yield edit
    yield from structural(source, function, statements)
    twice = {text for text, n in Counter(map(ast.unparse, statements)).items() if n > 1}
    for node in statements:
        if not _may_go(source, node, is_repeated=ast.unparse(node) in twice):
            continue
        yield Edit.instead(source.path, node)
        yield Edit.instead(source.path, node, "pass")


def _head(node: ast.stmt) -> str:
    """Return the text of a statement without its block."""
    match node:
        case ast.If(test=head) | ast.For(iter=head):
            return ast.unparse(head)
    return ast.unparse(node)


def _may_go(source: Source, node: ast.stmt, *, is_repeated: bool) -> bool:
    """Tell whether a statement may be left out; see Note [Small changes]."""
    if len(source.text(node)) > MOST_LINES:
        return False
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    kept = ast.Return | ast.FunctionDef | ast.Pass | ast.AugAssign
    if is_text or isinstance(node, kept):
        return False
    if isinstance(node, ast.Assign) and _counts(node.targets[0], node.value):
        return False
    return is_repeated or not WORK.search(ast.unparse(node))


@dataclass(frozen=True, slots=True)
class Names:
    """Attributes of the subject that may take the place of others.

    Attributes:
        compared: Attributes that comparisons have, for a compared number.
        siblings: Attributes with a similar name, by attribute.
    """

    compared: Sequence[ast.expr] = ()
    siblings: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, trees: Iterable[ast.Module]) -> Names:
        """Return the names of some files."""
        listed = [*trees]
        return cls(_compared_attributes(listed), siblings_in(listed))


def _compared_attributes(trees: Iterable[ast.Module]) -> list[ast.expr]:
    """List the attributes of `self` that comparisons of some files have, each once."""
    found: dict[str, ast.expr] = {}
    nodes = (node for tree in trees for node in ast.walk(tree))
    for compare in (node for node in nodes if isinstance(node, ast.Compare)):
        for side in (compare.left, *compare.comparators):
            if isinstance(side, ast.Attribute) and ast.unparse(side).startswith(
                "self."
            ):
                found[ast.unparse(side)] = side
    return [*found.values()]


def _simpler(path: str, node: ast.stmt, names: Names) -> Iterator[Edit]:
    """Yield a statement with one of its expressions made simpler."""
    texts: Iterable[str]
    match node:
        case ast.If():
            heads = _variants(node, "test", names)
            texts = (f"if {ast.unparse(each.test)}:" for each in heads)
        case ast.For():
            heads = _variants(node, "iter", names)
            texts = (
                f"for {ast.unparse(each.target)} in {ast.unparse(each.iter)}:"
                for each in heads
            )
        case _ if isinstance(node, _SIMPLE) and node.value is not None:
            wholes = _variants(node, "value", names)
            texts = itertools.chain(map(ast.unparse, wholes), other_assignments(node))
        case _:
            return
    body = getattr(node, "body", None)
    end = body[0].lineno - 1 if body else node.end_lineno or node.lineno
    if end < node.lineno:  # the body is on the line of the head
        return
    for text in texts:
        lines = tuple(text.splitlines())
        yield Edit(path, node.lineno, end - node.lineno + 1, lines, node.col_offset)


def _variants(node: ast.stmt, field: str, names: Names) -> Iterator[Any]:
    """Yield copies of a statement, each with another expression in the place of one."""
    whole = getattr(node, field)
    compared = _compared_numbers(whole)
    for position, inner in enumerate(ast.walk(whole)):
        if not isinstance(inner, ast.expr):
            continue
        numbers = (*compared[inner], *names.compared) if inner in compared else ()
        others = near_misses(inner, names.siblings)
        for simpler in (*_parts(inner, numbers), *others):
            changed = copy.deepcopy(node)
            old = [*ast.walk(getattr(changed, field))][position]
            replaced = _Replacer(old, simpler).visit(getattr(changed, field))
            setattr(changed, field, replaced)
            if not (_compares_with_itself(replaced) or _stands_still(node, replaced)):
                yield ast.fix_missing_locations(changed)


def _compared_numbers(whole: ast.expr) -> dict[ast.expr, list[ast.expr]]:
    """Return the numbers that an expression compares, with the lengths of what is counted."""
    return {
        side: [*map(_length, filter(None, map(_counted, sides)))]
        for node in ast.walk(whole)
        if isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.In)
        for sides in [(node.left, *node.comparators)]
        for side in sides
        if isinstance(side, ast.Constant)
    }


def _counted(side: ast.expr) -> ast.expr | None:
    """Return the list of which `x.count(...)` counts some elements."""
    match side:
        case ast.Call(func=ast.Attribute(value=value, attr="count")):
            return value
    return None


def _length(value: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("len", ast.Load()), [value], [])


def _compares_with_itself(whole: ast.expr) -> bool:
    return any(
        ast.unparse(node.left) == ast.unparse(node.comparators[0])
        for node in ast.walk(whole)
        if isinstance(node, ast.Compare)
    )


def _stands_still(node: ast.stmt, value: ast.expr) -> bool:
    """Tell whether an assignment would freeze a counter or a flag that it changes."""
    match node:
        case ast.Assign(targets=[target]):
            is_frozen = _counts(target, node.value) and not _counts(target, value)
            return is_frozen or _reads(value, target)
        case ast.AugAssign():
            return isinstance(value, ast.Constant) and not value.value
    return False


def _counts(target: ast.expr, value: ast.expr) -> bool:
    """Tell whether a value counts on from that of its own place, or is its opposite."""
    for node in ast.walk(value):
        match node:
            case ast.BinOp(left, ast.Add() | ast.Sub(), ast.Constant()):
                side = left
            case ast.BinOp(ast.Constant(), ast.Add() | ast.Sub(), right):
                side = right
            case ast.UnaryOp(ast.Not(), operand):
                side = operand
            case _:
                continue
        if _reads(side, target):
            return True
    return False


def _reads(value: ast.expr, place: ast.expr) -> bool:
    """Tell whether a value is that of a place, or its default where the place has none."""
    match value, place:
        case (
            ast.Call(ast.Name("getattr"), [owner, ast.Constant(name), *_]),
            ast.Attribute(of, attr),
        ):
            return name == attr and ast.unparse(owner) == ast.unparse(of)
        case (
            ast.Call(ast.Attribute(owner, "get"), [key, *_]),
            ast.Subscript(of, index),
        ):
            return ast.unparse(owner) == ast.unparse(of) and ast.unparse(
                key
            ) == ast.unparse(index)
    return ast.unparse(value) == ast.unparse(place)


def _parts(inner: ast.expr, attributes: Sequence[ast.expr]) -> Iterator[ast.expr]:
    """Yield simpler expressions of the same kind."""
    match inner:
        case ast.IfExp(body=body, orelse=orelse):
            yield from (orelse, body)
        case ast.BoolOp(values=values):  # not the empty value of `x or ()`
            yield from (each for each in values if not _is_literal(each))
        case ast.BinOp(left=left, op=op, right=right):
            if isinstance(op, ast.FloorDiv) and not isinstance(left, ast.UnaryOp):
                # A number of buckets or shards counts the last one, which may not be full.
                yield ast.parse(
                    f"-(-({ast.unparse(left)}) // ({ast.unparse(right)}))", mode="eval"
                ).body
            yield left
            if not isinstance(right, ast.Constant):
                yield right
        case ast.Subscript(value=value, slice=ast.Slice()):
            yield value
        case ast.Call(func=ast.Name(id="int" | "max" | "min"), args=args):
            yield from (each for each in args if not isinstance(each, ast.Constant))
        case ast.Call(func=ast.Name(id="set"), args=[value]):
            yield value
            # Backward runs from the last parameter to the first.
            yield ast.Call(ast.Name("reversed", ast.Load()), [value], [])
        case ast.Call(func=ast.Attribute(value=value, attr="clone" | "contiguous")):
            yield value
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            yield from attributes
            if attributes:
                yield from (ast.Constant(each) for each in (0, 1) if each != number)
        case ast.Call(
            func=ast.Attribute(value=value, attr="default_stream"), args=args
        ):
            # A training loop may run on a stream of its own.
            current = ast.Attribute(value, "current_stream", ast.Load())
            yield ast.Call(current, args, [])
        case ast.UnaryOp(op=ast.USub()):
            yield ast.Constant(0)
        case _:
            return


def _is_literal(value: ast.expr) -> bool:
    is_empty = isinstance(value, ast.Tuple | ast.List) and not value.elts
    return is_empty or isinstance(value, ast.Constant)


class _Replacer(ast.NodeTransformer):
    """Puts one expression in the place of another one."""

    def __init__(self, old: ast.AST, new: ast.expr) -> None:
        self._old = old
        self._new = new

    @override
    def visit(self, node: ast.AST) -> Any:
        """Return the new expression for the old one."""
        return self._new if node is self._old else self.generic_visit(node)
