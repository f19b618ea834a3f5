"""Mistakes about numbers: bounds, counts, factors, reductions and their ranks."""

import ast
from collections.abc import Iterator

from studies.mutants.edits import Edit, called, dropped
from studies.mutants.source import Source

COLLECTIVES = frozenset({"all_reduce", "_reduce_scatter"})
REDUCE_OP = '__import__("torch").distributed.ReduceOp'
STRICTNESS = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}


def off_by_one(source: Source, _scope: str, node: ast.AST) -> Iterator[Edit]:
    """Miss a bound of a slice, or a count, by one."""
    if isinstance(node, ast.Slice):
        for bound in (node.lower, node.upper):
            if bound is not None:
                yield Edit(bound, f"{source.segment(bound)} + 1")
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in STRICTNESS:
        left, right = map(source.segment, (node.left, node.comparators[0]))
        yield Edit(node, f"{left} {STRICTNESS[type(node.ops[0])]} {right}")
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq):
        if any(word in source.segment(node) for word in ("num_", "require", "ndim")):
            left, right = map(source.segment, (node.left, node.comparators[0]))
            yield Edit(node, f"{left} == {right} + 1")
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
        yield Edit(node, f"({source.segment(node)} + 1)")


def wrong_divisor(source: Source, _scope: str, node: ast.AST) -> Iterator[Edit]:
    """Leave out a division, or divide by twice as much."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        left, right = map(source.segment, (node.left, node.right))
        yield Edit(node, left)
        yield Edit(node, f"{left} / ({right} * 2)")
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult):
        yield dropped(node)
    elif isinstance(node, ast.Call) and called(node) == "prod":
        yield Edit(node, "1")
    elif isinstance(node, ast.BinOp) and source.segment(node).endswith("self.after"):
        yield Edit(node, source.segment(node.left))


def wrong_op(source: Source, _scope: str, node: ast.AST) -> Iterator[Edit]:
    """Take the largest instead of the sum, or a mean instead of a sum."""
    if isinstance(node, ast.Call) and called(node) in COLLECTIVES:
        text = source.segment(node).removesuffix(")")
        yield Edit(node, f"{text}, op={REDUCE_OP}.MAX)")
    elif isinstance(node, ast.Constant) and node.value in ("sum", "avg"):
        yield Edit(node, '"avg"' if node.value == "sum" else '"sum"')


def wrong_group(source: Source, _scope: str, node: ast.AST) -> Iterator[Edit]:
    """Reduce over all ranks, or over another axis."""
    if isinstance(node, ast.Call) and called(node) in COLLECTIVES:
        for keyword in node.keywords:
            if keyword.arg == "group":
                yield Edit(keyword.value, f"({source.segment(keyword.value)} and None)")
    elif isinstance(node, ast.Call) and called(node) == "get_group":
        receiver = source.segment(node.func).removesuffix(".get_group")
        yield Edit(node, f"{receiver}.get_group(0)")
    elif isinstance(node, ast.Call) and called(node) == "spanned_ranks":
        mesh = source.segment(node.args[0])
        yield Edit(node, f"spanned_ranks({mesh}, range({mesh}.ndim))")
    elif isinstance(node, ast.Call) and source.segment(node) == "self.remaining.pop()":
        yield Edit(node, "self.remaining.pop(0)")
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In):
        yield Edit(node, f"(not {source.segment(node)})")
