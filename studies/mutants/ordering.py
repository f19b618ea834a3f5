"""Mistakes about order: of work on streams, of launches, of releases."""

import ast
from collections.abc import Iterator

from studies.mutants.edits import Edit, called, dropped, neighbours, swapped
from studies.mutants.source import Source

WAITS = frozenset({"wait", "wait_stream", "wait_for", "release_to", "finish"})
ODD_RANK = '__import__("torch").distributed.get_rank() % 2 == 1'
NO_CONTEXT = '__import__("contextlib").nullcontext()'


def drop_wait(_source: Source, _scope: str, node: ast.AST) -> Iterator[Edit]:
    """Leave out a wait of the host or of a stream."""
    if isinstance(node, ast.Expr) and called(node) in WAITS:
        yield dropped(node)


def late_wait(source: Source, _scope: str, node: ast.AST) -> Iterator[Edit]:
    """Swap a wait with the next statement, which is then queued too early."""
    for first, second in neighbours(node):
        if isinstance(first, ast.Expr) and called(first) in WAITS:
            yield swapped(source, first, second)


def wrong_stream(source: Source, _scope: str, node: ast.AST) -> Iterator[Edit]:
    """Queue work on the wrong stream, or let the wrong one of two streams wait."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return
    receiver = source.segment(node.func.value)
    arguments = ", ".join(map(source.segment, node.args))
    if node.func.attr == "activate":
        yield Edit(node, NO_CONTEXT)
    elif node.func.attr == "wait_stream":
        yield Edit(node, f"{arguments}.wait_stream({receiver})")
    elif node.func.attr == "release_to":
        yield Edit(node, f"{receiver}.wait_for(({arguments},))")
    elif node.func.attr == "wait_for" and arguments.startswith("self._writers"):
        yield Edit(node, f"{receiver}.wait_for([*{arguments}][-1:])")


def swap_order(source: Source, _scope: str, node: ast.AST) -> Iterator[Edit]:
    """Leave out a sort or a reversal."""
    if isinstance(node, ast.Expr) and called(node) == "sort":
        yield dropped(node)
    elif isinstance(node, ast.Call) and called(node) in {"sorted", "reversed"}:
        yield Edit(node, f"list({source.segment(node.args[0])})")
    elif isinstance(node, ast.Subscript) and source.segment(node.slice) == "::-1":
        yield Edit(node, source.segment(node.value))


def rank_dependent_order(source: Source, _scope: str, node: ast.AST) -> Iterator[Edit]:
    """Sort in the opposite order on every second rank."""
    if isinstance(node, ast.Call) and called(node) in {"sorted", "sort"}:
        text = source.segment(node).removesuffix(")").rstrip().removesuffix(",")
        yield Edit(node, f"{text}, reverse={ODD_RANK})".replace("(, ", "("))


def early_free(source: Source, scope: str, node: ast.AST) -> Iterator[Edit]:
    """Release something one statement too early."""
    if scope.endswith((".release", ".unbind", ".rebuild")):
        for first, second in neighbours(node):
            if not _is_harmless(first) and not _is_harmless(second):
                yield swapped(source, first, second)
    if called(node) == "callback" and isinstance(node, ast.Expr):
        yield dropped(node)


def _is_harmless(statement: ast.stmt) -> bool:
    """Tell whether a statement releases nothing and orders nothing."""
    if isinstance(statement, ast.Expr):
        return called(statement) in {"", "clear", "forget"}
    return isinstance(statement, ast.Assign)
