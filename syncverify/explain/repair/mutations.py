"""Candidates for any other mistake: a statement less, another order, or a simpler expression.

Note [Small changes]
    A mistake is often something that is there and should not be: a second division, a special
    case for one rank, one step more or less in a comparison. So a statement is left out, and an
    expression gives way to another one (Note [Rewrites]). A missing statement is found only by
    these changes of structure:

    | the mistake | the candidate |
    |---|---|
    | a case of its own, such as "odd ranks" or "full buckets" | what the other cases do |
    | two statements in the wrong order | the other order |
    | an override that leaves out what its base does | a call of the base |

    A statement that counts, communicates or registers hooks is never left out: a subject that
    does nothing breaks no rule of order. An override whose whole body is one `return` may ask its
    base, too: then the override itself is the mistake. The base is called by its name. `super()`
    needs a cell that the code of a living function cannot get.
"""

import ast
import copy
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from syncverify.explain.repair.rewrites import Names, rewrites
from syncverify.explain.repair.source_edit import Edit, Function, Source, code_in

# Lines that communicate, or that register hooks.
WORK: Final = re.compile(
    r"\b(register\w*|all_\w+|\w*reduce\w*|broadcast\w*|scatter|gather|i?send|i?recv|barrier)\("
)
# Most lines that a change leaves out. A mistake that is one statement too many is a short one; a
# long block has a purpose.
_MOST_LINES: Final = 6
# Another cap of buckets, or none, only avoids a mistake.
_LIMIT: Final = re.compile(r"cap_|\bcap\b|_cap\b|capacity|bucket_size|size_mb")
_SIMPLE: Final = (ast.Expr, ast.Assign, ast.AugAssign, ast.Return, ast.AnnAssign)


def mutations(source: Source, function: Function, names: Names) -> Iterator[Edit]:
    """Yield changes of one function, those of simple expressions first."""
    statements = [node for node in ast.walk(function) if isinstance(node, ast.stmt)][1:]
    statements.sort(key=lambda node: node.lineno)
    for node in statements:
        for edit in _rewritten(source.path, node, names):
            if not _LIMIT.search("\n".join((*edit.lines, _head(node)))):
                yield edit
    for node in statements:
        if isinstance(node, ast.If):
            yield from _one_case(source, node)
    for node in (function, *statements):
        for first, second in itertools.pairwise(code_in(node)):
            yield from _swapped(source, first, second)
    yield from _base_asked(source, function)
    twice = {text for text, n in Counter(map(ast.unparse, statements)).items() if n > 1}
    for node in statements:
        if _may_go(source, node, is_repeated=ast.unparse(node) in twice):
            yield source.instead(node)
            yield source.instead(node, "pass")


def _head(node: ast.stmt) -> str:
    """Return the text of a statement without its block."""
    match node:
        case ast.If(test=test):
            return f"if {ast.unparse(test)}:"
        case ast.For(target=target, iter=elements):
            return f"for {ast.unparse(target)} in {ast.unparse(elements)}:"
    return ast.unparse(node)


def _may_go(source: Source, node: ast.stmt, *, is_repeated: bool) -> bool:
    """Tell whether a statement may be left out; see Note [Small changes]."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return False
        case ast.Return() | ast.FunctionDef() | ast.Pass() | ast.AugAssign():
            return False
        case ast.Assign(targets=[target, *_], value=value) if _counts(target, value):
            return False
    is_short = len(source.text(node)) <= _MOST_LINES
    return is_short and (is_repeated or not WORK.search(ast.unparse(node)))


def _rewritten(path: str, node: ast.stmt, names: Names) -> Iterator[Edit]:
    """Yield a statement with one of its expressions rewritten, then with others of its kind."""
    match node:
        case ast.If():
            variants = _variants(node, "test", names)
        case ast.For():
            variants = _variants(node, "iter", names)
        case _ if isinstance(node, _SIMPLE) and node.value is not None:
            variants = itertools.chain(_variants(node, "value", names), rewrites(node))
        case _:
            return
    body = getattr(node, "body", None)
    end = body[0].lineno - 1 if body else node.end_lineno or node.lineno
    if end < node.lineno:  # the body is on the line of the head
        return
    for each in variants:
        lines = tuple(_head(each).splitlines())
        yield Edit(path, node.lineno, end - node.lineno + 1, lines, node.col_offset)


def _variants(node: ast.stmt, field: str, names: Names) -> Iterator[Any]:
    """Yield copies of a statement, each with another expression in the place of one."""
    whole = getattr(node, field)
    compared = _compared_numbers(whole)
    for inner in ast.walk(whole):
        if not isinstance(inner, ast.expr):
            continue
        numbers = (*compared[inner], *names.compared) if inner in compared else ()
        for other in rewrites(inner, names, numbers):
            # The other expression counts as the copy of the inner one.
            changed = copy.deepcopy(node, {id(inner): other})
            value = getattr(changed, field)
            if not (_compares_with_itself(value) or _stands_still(node, value)):
                yield changed


def _compared_numbers(whole: ast.expr) -> dict[ast.expr, list[ast.expr]]:
    """Return the numbers that an expression compares, with the lengths of what is counted."""
    found = dict[ast.expr, list[ast.expr]]()
    for node in ast.walk(whole):
        if isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.In):
            sides = (node.left, *node.comparators)
            lengths = list[ast.expr]()
            for side in sides:
                match side:
                    case ast.Call(func=ast.Attribute(value=value, attr="count")):
                        length = ast.Call(ast.Name("len", ast.Load()), [value], [])
                        lengths.append(length)
            numbers = (side for side in sides if isinstance(side, ast.Constant))
            found |= dict.fromkeys(numbers, lengths)
    return found


def _compares_with_itself(whole: ast.expr) -> bool:
    compares = (each for each in ast.walk(whole) if isinstance(each, ast.Compare))
    return any(
        ast.unparse(each.left) == ast.unparse(each.comparators[0]) for each in compares
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
            case (
                ast.BinOp(side, ast.Add() | ast.Sub(), ast.Constant())
                | ast.BinOp(ast.Constant(), ast.Add() | ast.Sub(), side)
                | ast.UnaryOp(ast.Not(), side)
            ) if _reads(side, target):
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
            pairs = (owner, of), (key, index)
            return all(ast.unparse(one) == ast.unparse(two) for one, two in pairs)
    return ast.unparse(value) == ast.unparse(place)


def _one_case(source: Source, node: ast.If) -> Iterator[Edit]:
    """Put each case of an `if` in the place of all of it."""
    if source.lines[node.lineno - 1].lstrip().startswith("elif"):
        return
    is_limit = _LIMIT.search(ast.unparse(node.test))
    for case in filter(None, (node.orelse, node.body)):
        lines = [line for each in case for line in source.text(each)]
        is_short = len(source.text(node)) - len(lines) <= _MOST_LINES
        if is_short and (not is_limit or WORK.search("\n".join(lines))):
            yield source.instead(node, *lines)


def _swapped(source: Source, first: ast.stmt, second: ast.stmt) -> Iterator[Edit]:
    match first, second:
        case ast.Expr(value=ast.Call()), ast.Expr(value=ast.Call()):
            num_lines = (second.end_lineno or second.lineno) - first.lineno + 1
            lines = (*source.text(second), *source.text(first))
            yield Edit(source.path, first.lineno, num_lines, lines, first.col_offset)


def _base_asked(source: Source, function: Function) -> Iterator[Edit]:
    owner, code = source.owner_of(function), code_in(function)
    name = f".{function.name}("
    is_called = any(name in ast.unparse(node) for node in code)
    if not (owner and owner.bases and code) or is_called:
        return
    taken = function.args
    arguments = [each.arg for each in (*taken.posonlyargs, *taken.args)]
    arguments += [f"{each.arg}={each.arg}" for each in taken.kwonlyargs]
    call = f"{ast.unparse(owner.bases[0])}{name}{', '.join(arguments)})"
    match code:
        case [ast.Pass() as only] | [ast.Return(value=ast.expr()) as only]:
            yield source.instead(only, f"return {call}")
        case _ if not any(isinstance(n, ast.Return) for n in ast.walk(function)):
            yield source.before(code[0], call)
            yield source.after(code[-1], call)
