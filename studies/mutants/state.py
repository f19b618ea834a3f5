"""Mistakes about state: zeros, views, counts, resets and hooks."""

import ast
from collections.abc import Iterator

from studies.mutants.edits import Edit, called, dropped
from studies.mutants.source import Source

VIEWS = frozenset(
    {"attach", "detach", "copy_", "drop", "drop_unused", "drop_scattered", "restart"}
)
NOTES = frozenset({"append", "setdefault", "open", "write", "publish", "end_backward"})
BEGINNINGS = frozenset({"__init__", "__post_init__", "of"})


def skip_zero(source: Source, _scope: str, node: ast.AST) -> Iterator[Edit]:
    """Leave old values in memory."""
    if isinstance(node, ast.Expr) and called(node) == "zero_":
        yield dropped(node)
    elif isinstance(node, ast.Attribute) and source.segment(node) == "torch.zeros":
        yield Edit(node, "torch.ones")


def stale_view(source: Source, _scope: str, node: ast.AST) -> Iterator[Edit]:
    """Do not move a gradient, or let `.grad` be memory outside of the buffer."""
    if isinstance(node, ast.Expr) and called(node) in VIEWS:
        yield dropped(node)
    elif isinstance(node, ast.Call | ast.Subscript) and _is_view(source, node):
        yield Edit(node, f"{source.segment(node)}.clone()")


def lose_accumulation(_source: Source, _scope: str, node: ast.AST) -> Iterator[Edit]:
    """Do not note a gradient, a writer, or a launch."""
    if isinstance(node, ast.AugAssign):
        is_note = isinstance(node.op, ast.Add | ast.Sub)
    elif isinstance(node, ast.Assign):
        is_note = isinstance(node.targets[0], ast.Subscript)
    else:
        is_note = isinstance(node, ast.Expr) and called(node) in NOTES
    if is_note and isinstance(node, ast.stmt):
        yield dropped(node)


def drop_reset(_source: Source, scope: str, node: ast.AST) -> Iterator[Edit]:
    """Keep state of an earlier step."""
    if scope.rpartition(".")[2] in BEGINNINGS:
        return
    resets = {"clear", "close", "forget"}
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
        # A value that is not computed is one with which a step starts or goes on.
        if isinstance(node.value, ast.Constant | ast.Name | ast.Attribute | ast.Dict):
            yield dropped(node)
    elif isinstance(node, ast.Expr) and called(node) in resets:
        yield dropped(node)


def drop_hook_removal(source: Source, _scope: str, node: ast.AST) -> Iterator[Edit]:
    """Leave a hook on a parameter."""
    if isinstance(node, ast.Expr) and called(node) in {"_remove_all", "remove_hooks"}:
        yield dropped(node)
    elif isinstance(node, ast.Call) and called(node) == "remove":
        yield Edit(node, source.segment(node).removesuffix(".remove()"))


def _is_view(source: Source, node: ast.Call | ast.Subscript) -> bool:
    """Tell whether an expression is a view of a buffer."""
    if isinstance(node, ast.Call):
        return called(node) in {"as_strided", "view_as"}
    return isinstance(node.slice, ast.Slice) and "buffer" in source.segment(node.value)
