"""Mistakes about what is held: zeros, views, counts, resets, hooks, and conditions."""

import ast
from collections.abc import Iterator

from mutants.edits import Edit, called, dropped
from mutants.source import Source

VIEWS = frozenset(
    {"attach", "detach", "copy_", "_copy", "drop", "drop_unused", "drop_scattered"}
    | {"freshen", "note_address", "take_over", "restart"}
)
NOTES = frozenset({"append", "_settle", "setdefault", "open", "leave", "end_backward"})
BEGINNINGS = frozenset({"__init__", "__post_init__", "of"})


def skip_zero(source: Source, _scope: str, node: ast.AST) -> Iterator[Edit]:
    """Leave in memory what was there."""
    if isinstance(node, ast.Expr) and called(node) == "zero_":
        yield dropped(node)
    elif isinstance(node, ast.Attribute) and source.segment(node) == "torch.zeros":
        yield Edit(node, "torch.ones")


def stale_view(source: Source, _scope: str, node: ast.AST) -> Iterator[Edit]:
    """Do not move a gradient, or let `.grad` be other memory than the buffer's."""
    if isinstance(node, ast.Expr) and called(node) in VIEWS:
        yield dropped(node)
    elif isinstance(node, ast.Call | ast.Subscript) and _is_view(source, node):
        yield Edit(node, f"{source.segment(node)}.clone()")


def lose_accumulation(_source: Source, _scope: str, node: ast.AST) -> Iterator[Edit]:
    """Do not take note of a gradient, of a writer, or of a launch."""
    if isinstance(node, ast.AugAssign):
        is_note = isinstance(node.op, ast.Add | ast.Sub)
    elif isinstance(node, ast.Assign):
        is_note = isinstance(node.targets[0], ast.Subscript)
    else:
        is_note = isinstance(node, ast.Expr) and called(node) in NOTES
    if is_note and isinstance(node, ast.stmt):
        yield dropped(node)


def drop_reset(_source: Source, scope: str, node: ast.AST) -> Iterator[Edit]:
    """Let a step find what an earlier one left."""
    if scope.rpartition(".")[2] in BEGINNINGS:
        return
    resets = {"clear", "close", "forget"}
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
        # What is not computed: the value that a step starts, or goes on, with.
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


def negate(source: Source, _scope: str, node: ast.AST) -> Iterator[Edit]:
    """Do one thing where the other had to be done."""
    if isinstance(node, ast.If):
        if not _only_refuses(node) and not _may_fail_loudly(node.test):
            yield Edit(node.test, f"not ({source.segment(node.test)})")
    elif isinstance(node, ast.comprehension):
        for condition in node.ifs:
            yield Edit(condition, f"not ({source.segment(condition)})")


def _is_view(source: Source, node: ast.Call | ast.Subscript) -> bool:
    """Tell whether an expression is other memory's view."""
    if isinstance(node, ast.Call):
        return called(node) in {"as_strided", "view_as"}
    return isinstance(node.slice, ast.Slice) and "buffer" in source.segment(node.value)


def _may_fail_loudly(test: ast.expr) -> bool:
    """Tell whether the other branch has nothing to work with, and raises at once."""
    return any(
        isinstance(inner, ast.Constant) and inner.value is None
        for inner in ast.walk(test)
    ) or (isinstance(test, ast.Call) and called(test) == "isinstance")


def _only_refuses(node: ast.If) -> bool:
    return not node.orelse and all(
        isinstance(entry, ast.Raise) or called(entry).lstrip("_").startswith("refuse")
        for entry in node.body
    )
