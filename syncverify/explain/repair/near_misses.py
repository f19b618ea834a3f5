"""Candidates for a slip of the pen: a neighbouring operator, name, method or number.

Note [Slips of the pen]
    | the mistake | the candidate |
    |---|---|
    | `<` for `<=`, `>` for `>=`; `not x` for `x` | the other one |
    | `=` for `+=`, `copy_` for `add_`, `a.copy_(b)` for `b.copy_(a)` | the other one |
    | `x = [y]` for `x.append(y)`, `x[i] = y` for `x[i].copy_(y)` | the other one |
    | `self.tp_group` for `self.dp_group` | an attribute with the same last or first word |
    | `x[0]` for `x[-1]` | the other end |
    | `register_hook` | the hook that runs when the gradient is accumulated |
    | `is_completed()` for `wait()`, `reduce` for `all_reduce` | the other one |
    | memory that is not cleared, `empty` | `zeros` |
    | a sum where the contract has means | `all_reduce` with `ReduceOp.AVG` |
    | `ReduceOp.MAX`, a number of devices | the reduction that gradients have, that of ranks |
    | a function in a loop that reads the loop's variable later | it keeps the variable's value |
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

_NEIGHBOURS: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_METHODS: Final = {
    "copy_": "add_",
    "add_": "copy_",
    "is_completed": "wait",
    "register_hook": "register_post_accumulate_grad_hook",
    "empty": "zeros",
    "empty_like": "zeros_like",
    "new_empty": "new_zeros",
}
_REDUCTIONS: Final = {"SUM": "AVG"}  # any other one gives way to SUM
_MAX_SIBLINGS: Final = 3


def near_misses(
    inner: ast.expr, siblings: Mapping[str, Sequence[str]]
) -> Iterator[ast.expr]:
    """Yield the expressions that a slip of the pen turns into this one.

    Args:
        inner: The expression.
        siblings: Attributes of `self` with a similar name, by attribute.

    Yields:
        Expressions for its place.
    """
    match inner:
        case ast.Compare(left=left, ops=[op], comparators=comparators) if (
            type(op) in _NEIGHBOURS
        ):
            yield ast.Compare(left, [_NEIGHBOURS[type(op)]()], comparators)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Attribute(value=ast.Name(id="self") as owner, attr=name):
            for other in siblings.get(name, ()):
                yield ast.Attribute(owner, other, ast.Load())
        case ast.Attribute(value=value, attr=name) if ast.unparse(value).endswith(
            "ReduceOp"
        ):
            yield ast.Attribute(value, _REDUCTIONS.get(name, "SUM"), ast.Load())
        case ast.Call(func=ast.Attribute()):
            yield from _other_calls(inner, inner.func)
        case ast.Lambda():
            yield from _with_kept_names(inner)
        case ast.Subscript(value=value, slice=index):
            for end in _other_ends(index):
                yield ast.Subscript(value, ast.Constant(end), ast.Load())
        case _:
            return


def _other_calls(call: ast.Call, function: ast.expr) -> Iterator[ast.expr]:
    """Yield calls of another method, and of the same one the other way round."""
    match function:
        case ast.Attribute(value=value, attr=name) if name in _METHODS:
            other = ast.Attribute(value, _METHODS[name], ast.Load())
            yield ast.Call(other, call.args, call.keywords)
            if name == "copy_" and len(call.args) == 1:
                source = call.args[0]
                yield ast.Call(ast.Attribute(source, name, ast.Load()), [value], [])
        case ast.Attribute(value=value, attr="reduce"):
            keywords = [each for each in call.keywords if each.arg != "dst"]
            to_all = ast.Attribute(value, "all_reduce", ast.Load())
            yield ast.Call(to_all, call.args[:1], keywords)
        case ast.Attribute(value=value, attr="all_reduce"):
            if len(call.args) == 1 and "op" not in {each.arg for each in call.keywords}:
                mean = ast.parse(f"{ast.unparse(value)}.ReduceOp.AVG", mode="eval").body
                keywords = [ast.keyword("op", mean), *call.keywords]
                yield ast.Call(function, call.args, keywords)
        case ast.Attribute(attr="device_count"):
            yield ast.parse("dist.get_world_size()", mode="eval").body
        case _:
            return


def _with_kept_names(function: ast.Lambda) -> Iterator[ast.expr]:
    """Yield a function that takes the values that its names have when it is made."""
    own = {each.arg for each in function.args.args}
    used = {
        node.id: None
        for node in ast.walk(function.body)
        if isinstance(node, ast.Name) and node.id not in own | {"self"}
    }
    text = ast.unparse(function.body)
    called = {name for name in used if f"{name}(" in text}
    if kept := [name for name in used if name not in called]:
        listed = ", ".join([*own, *(f"{name}={name}" for name in kept)])
        yield ast.parse(f"lambda {listed}: {text}", mode="eval").body


def _other_ends(index: ast.expr) -> Iterator[int]:
    match index:
        case ast.Constant(value=0):
            yield -1
        case ast.Constant(value=1):
            yield 0
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1)):
            yield 0
        case _:
            return


def other_assignments(node: ast.stmt) -> Iterator[str]:
    """Yield what an assignment may have been meant to be; see Note [Slips of the pen]."""
    match node:
        case ast.AugAssign(target=target, op=ast.Add(), value=value) if _adds(value):
            yield f"{ast.unparse(target)} = {ast.unparse(value)}"
        case ast.Assign(
            targets=[ast.Attribute() as target], value=ast.List(elts=[value])
        ):
            yield f"{ast.unparse(target)}.append({ast.unparse(value)})"
        case ast.Assign(targets=[ast.expr() as target], value=value):
            if _adds(value):
                yield f"{ast.unparse(target)} += {ast.unparse(value)}"
            if isinstance(target, ast.Subscript):
                yield f"{ast.unparse(target)}.copy_({ast.unparse(value)})"
        case _:
            return


def _adds(value: ast.expr) -> bool:
    """Tell whether a value may be added: a name, a sum, or a size."""
    match value:
        case ast.Name() | ast.Attribute() | ast.Subscript() | ast.BinOp():
            return True
        case ast.Call(func=ast.Attribute(attr="numel" | "element_size")):
            return True
        case ast.Call(func=ast.Name(id="len")):
            return True
    return False


def siblings_in(trees: Iterable[ast.AST]) -> dict[str, list[str]]:
    """Return the attributes of `self` with a similar name, by attribute; without methods."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    methods = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    names = {
        node.attr: None
        for node in nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and node.attr not in methods
    }
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
