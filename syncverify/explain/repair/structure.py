"""Candidates that change the order and the cases of statements, or ask the base class.

Note [Changes of structure]
    | the mistake | the candidate |
    |---|---|
    | a case of its own, such as "odd ranks" or "full buckets" | what the other cases do |
    | two statements in the wrong order | the other order |
    | an override that leaves out what its base does | a call of the base |

    An override whose whole body is one `return` may ask its base, too: then the override itself
    is the mistake. The base is called by its name. `super()` needs a cell that the code of a
    living function cannot get.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Sequence

from syncverify.explain.repair.source_edit import Edit, Source

# Lines that communicate, or that register hooks.
WORK = re.compile(
    r"\b(register\w*|all_\w+|\w*reduce\w*|broadcast\w*|scatter|gather|i?send|i?recv|barrier)\("
)
# Most lines that a change leaves out. A mistake that is one statement too many is a short one; a
# long block has a purpose.
MOST_LINES = 6
# Another cap of buckets, or none, only avoids a mistake.
LIMIT = re.compile(r"cap_|\bcap\b|_cap\b|capacity|bucket_size|size_mb")


def structural(
    source: Source, function: ast.FunctionDef, statements: Sequence[ast.stmt]
) -> Iterator[Edit]:
    """Yield changes of a function; see Note [Changes of structure].

    Args:
        source: The file.
        function: The function.
        statements: Its statements, nested ones included.

    Yields:
        Changes.
    """
    for node in statements:
        if isinstance(node, ast.If):
            yield from _one_case(source, node)
    for node in (function, *statements):
        for first, second in itertools.pairwise(_code(node)):
            yield from _swapped(source, first, second)
    yield from _base_asked(source, function)


def _one_case(source: Source, node: ast.If) -> Iterator[Edit]:
    """Put each case of an `if` in the place of all of it."""
    if source.lines[node.lineno - 1].lstrip().startswith("elif"):
        return
    is_limit = LIMIT.search(ast.unparse(node.test))
    for case in filter(None, (node.orelse, node.body)):
        lines = [line for each in case for line in source.text(each)]
        if len(source.text(node)) - len(lines) > MOST_LINES:
            continue
        if not is_limit or WORK.search("\n".join(lines)):
            yield Edit.instead(source.path, node, *lines)


def _swapped(source: Source, first: ast.stmt, second: ast.stmt) -> Iterator[Edit]:
    """Exchange two neighbours that are calls."""
    if not (_is_call(first) and _is_call(second)):
        return
    end = second.end_lineno or second.lineno
    lines = (*source.text(second), *source.text(first))
    yield Edit(
        source.path, first.lineno, end - first.lineno + 1, lines, first.col_offset
    )


def _is_call(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def _base_asked(source: Source, function: ast.FunctionDef) -> Iterator[Edit]:
    """Call the method of the base class in an override that does not."""
    base, code = _base_of(source, function), _code(function)
    name = f".{function.name}("
    if base is None or not code or any(name in ast.unparse(node) for node in code):
        return
    call = f"{base}{name}{', '.join(_arguments(function))})"
    match code:
        case [ast.Pass() as only] | [ast.Return(value=ast.expr()) as only]:
            yield Edit.instead(source.path, only, f"return {call}")
        case _ if not any(isinstance(n, ast.Return) for n in ast.walk(function)):
            yield Edit.before(source.path, code[0], call)
            yield Edit.after(source.path, code[-1], call)


def _base_of(source: Source, function: ast.FunctionDef) -> str | None:
    """Name the first base of the class that has a method."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef) and function in node.body and node.bases:
            return ast.unparse(node.bases[0])
    return None


def _arguments(function: ast.FunctionDef) -> Iterator[str]:
    arguments = function.args
    yield from (each.arg for each in (*arguments.posonlyargs, *arguments.args))
    yield from (f"{each.arg}={each.arg}" for each in arguments.kwonlyargs)


def _code(node: ast.stmt) -> list[ast.stmt]:
    """Return the body of a statement without its docstring."""
    body: list[ast.stmt] = getattr(node, "body", [])
    return [
        each
        for each in body
        if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
    ]
