"""Candidates for a wrong expression: a part of it, or what a slip of the pen turned into it.

Note [Rewrites]
    A row of the table is a pattern, and what may take its place. A capital stands for any
    expression, `N` for a name, a sum or a size, `T` for an attribute, and `(...)` for the arguments
    of a call. Some rewrites depend on more than the expression:

    | the mistake | the candidate |
    |---|---|
    | `self.tp_group` for `self.dp_group` | an attribute with the same last or first word |
    | a compared number | what other comparisons have in its place, 0 and 1 |
    | a number of parts that is rounded down | the last one counts, which may not be full |
    | `reduce`; a sum where the contract has means | `all_reduce`, also with `ReduceOp.AVG` |
    | a function in a loop that reads the loop's variable later | it keeps the variable's value |
"""

from __future__ import annotations

import ast
import copy
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import EllipsisType
from typing import Any, Final, TypeGuard

_TABLE: Final[tuple[tuple[str, ...], ...]] = (
    ("A if B else C", "C", "A"),
    # Backward runs from the last parameter to the first.
    ("set(A)", "A", "reversed(A)"),
    ("A.clone(...)", "A"),
    ("A.contiguous(...)", "A"),
    ("-A", "0"),
    ("not A", "A"),
    # A training loop may run on a stream of its own.
    ("A.default_stream(...)", "A.current_stream(...)"),
    ("A.device_count(...)", "dist.get_world_size()"),
    # The neighbour, the other end, the other method.
    ("A < B", "A <= B"),
    ("A <= B", "A < B"),
    ("A > B", "A >= B"),
    ("A >= B", "A > B"),
    ("A[0]", "A[-1]"),
    ("A[1]", "A[0]"),
    ("A[-1]", "A[0]"),
    ("A.copy_(...)", "A.add_(...)"),
    ("A.copy_(B)", "B.copy_(A)"),
    ("A.add_(...)", "A.copy_(...)"),
    ("A.is_completed(...)", "A.wait(...)"),
    ("A.register_hook(...)", "A.register_post_accumulate_grad_hook(...)"),
    # Memory that is not cleared.
    ("A.empty(...)", "A.zeros(...)"),
    ("A.empty_like(...)", "A.zeros_like(...)"),
    ("A.new_empty(...)", "A.new_zeros(...)"),
    # Assignments.
    ("A += N", "A = N"),
    ("T = [A]", "T.append(A)"),
    ("A = N", "A += N"),
    ("A[B] = C", "A[B].copy_(C)"),
)
_MAX_SIBLINGS: Final = 3


@dataclass(frozen=True, slots=True)
class Names:
    """Attributes of the subject that may take the place of others."""

    # Those that comparisons have, for a compared number.
    compared: Sequence[ast.expr] = ()
    # Those with a similar name, by attribute.
    siblings: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, trees: Iterable[ast.Module]) -> Names:
        """Return the names of some files."""
        nodes = [node for tree in trees for node in ast.walk(tree)]
        return cls(_compared_attributes(nodes), _siblings_in(nodes))


def rewrites(
    node: ast.AST, names: Names | None = None, numbers: Sequence[ast.expr] = ()
) -> Iterator[ast.AST]:
    """Yield what may take the place of an expression or an assignment; see Note [Rewrites]."""
    for pattern, *others in _rows():
        found = dict[str, ast.AST]()
        if _fits(pattern, node, found):
            yield from (_filled(each, found) for each in others)
    match node:
        case ast.BoolOp(values=values):  # not the empty value of `x or ()`
            yield from (each for each in values if not _is_literal(each))
        case ast.BinOp(left=left, op=op, right=right):
            if isinstance(op, ast.FloorDiv) and not isinstance(left, ast.UnaryOp):
                yield _node(f"-(-({ast.unparse(left)}) // ({ast.unparse(right)}))")
            yield left
            if not isinstance(right, ast.Constant):
                yield right
        case ast.Subscript(value=value, slice=ast.Slice()):
            yield value
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            yield from numbers
            ends = (0, 1) if numbers else ()
            yield from (ast.Constant(each) for each in ends if each != number)
        case ast.Attribute(value=ast.Name(id="self") as owner, attr=name):
            siblings = names.siblings.get(name, ()) if names else ()
            yield from (ast.Attribute(owner, each, ast.Load()) for each in siblings)
        case ast.Attribute(value=value, attr=name):
            if ast.unparse(value).endswith("ReduceOp"):
                other = "AVG" if name == "SUM" else "SUM"
                yield ast.Attribute(value, other, ast.Load())
        case ast.Call(func=ast.Name(id="int" | "max" | "min"), args=args):
            yield from (each for each in args if not isinstance(each, ast.Constant))
        case ast.Call(func=ast.Attribute(value=value, attr="reduce")):
            to_all = ast.Attribute(value, "all_reduce", ast.Load())
            keywords = [each for each in node.keywords if each.arg != "dst"]
            yield ast.Call(to_all, node.args[:1], keywords)
        case ast.Call(func=ast.Attribute(value=value, attr="all_reduce"), args=[_]):
            if "op" not in {each.arg for each in node.keywords}:
                mean = _node(f"{ast.unparse(value)}.ReduceOp.AVG")
                keywords = [ast.keyword("op", mean), *node.keywords]
                yield ast.Call(node.func, node.args, keywords)
        case ast.Lambda():
            yield from _with_kept_names(node)


@functools.cache
def _rows() -> list[list[ast.AST]]:
    return [[*map(_node, row)] for row in _TABLE]


def _node(text: str) -> Any:
    (statement,) = ast.parse(text).body
    return statement.value if isinstance(statement, ast.Expr) else statement


def _fits(pattern: Any, node: Any, found: dict[str, ast.AST]) -> bool:
    """Tell whether a node is of a pattern, and note what its capitals stand for."""
    if isinstance(pattern, list):
        return len(pattern) == len(node) and all(
            _fits(*pair, found) for pair in zip(pattern, node, strict=True)
        )
    if isinstance(pattern, ast.Name) and pattern.id.isupper():
        found[pattern.id] = node
        return isinstance(node, ast.expr) and _is_of_kind(pattern.id, node)
    if type(pattern) is not type(node):
        return False
    if not isinstance(pattern, ast.AST):
        return bool(pattern == node)
    if _takes_any(pattern):
        found["..."] = node
        return _fits(pattern.func, node.func, found)
    fields = (name for name in pattern._fields if name != "ctx")
    return all(_fits(getattr(pattern, n), getattr(node, n), found) for n in fields)


def _is_of_kind(capital: str, node: ast.expr) -> bool:
    """Tell whether a capital stands for an expression."""
    if capital == "T":
        return isinstance(node, ast.Attribute)
    if capital != "N":
        return True
    match node:
        case (
            (ast.Name() | ast.Attribute() | ast.Subscript() | ast.BinOp())
            | ast.Call(func=ast.Attribute(attr="numel" | "element_size"))
            | ast.Call(func=ast.Name(id="len"))
        ):
            return True
    return False


def _takes_any(node: Any) -> TypeGuard[ast.Call]:
    match node:
        case ast.Call(args=[ast.Constant(value=EllipsisType())]):
            return True
    return False


def _filled(pattern: ast.AST, found: Mapping[str, Any]) -> ast.AST:
    """Return a copy of a pattern in which its capitals are what they stand for."""
    copies = dict[int, Any]()
    for node in ast.walk(pattern):
        if isinstance(node, ast.Name) and node.id in found:
            copies[id(node)] = found[node.id]
        elif _takes_any(node):
            call = found["..."]
            copies |= {id(node.args): call.args, id(node.keywords): call.keywords}
    return copy.deepcopy(pattern, copies)


def _is_literal(value: ast.expr) -> bool:
    is_empty = isinstance(value, ast.Tuple | ast.List) and not value.elts
    return is_empty or isinstance(value, ast.Constant)


def _with_kept_names(function: ast.Lambda) -> Iterator[ast.expr]:
    """Yield a function that takes the values that its names have when it is made."""
    own = [each.arg for each in function.args.args]
    names = (each for each in ast.walk(function.body) if isinstance(each, ast.Name))
    used = dict.fromkeys(each.id for each in names if each.id not in {*own, "self"})
    text = ast.unparse(function.body)
    if kept := [name for name in used if f"{name}(" not in text]:
        listed = ", ".join([*own, *(f"{name}={name}" for name in kept)])
        yield _node(f"lambda {listed}: {text}")


def _compared_attributes(nodes: Sequence[ast.AST]) -> list[ast.expr]:
    """Return the attributes of `self` that comparisons have, each once."""
    compares = (each for each in nodes if isinstance(each, ast.Compare))
    sides = (side for each in compares for side in (each.left, *each.comparators))
    found = {ast.unparse(e): e for e in sides if isinstance(e, ast.Attribute)}
    return [each for text, each in found.items() if text.startswith("self.")]


def _siblings_in(nodes: Sequence[ast.AST]) -> dict[str, list[str]]:
    """Return the attributes of `self` with a similar name, by attribute; without methods."""
    methods = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    names = dict.fromkeys(
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and node.attr not in methods
        if isinstance(node.value, ast.Name) and node.value.id == "self"
    )
    return {
        name: [other for other in names if _are_alike(name, other)][:_MAX_SIBLINGS]
        for name in names
    }


def _are_alike(one: str, other: str) -> bool:
    first, second = one.strip("_").split("_"), other.strip("_").split("_")
    return one != other and (
        (first[-1] == second[-1] and len(first) + len(second) > 2)
        or (first[0] == second[0] and len(first) == len(second) > 1)
    )
