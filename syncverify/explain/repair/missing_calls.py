"""Candidates for a forgotten line: a bucket that is never sent, a state that goes on.

Note [Forgotten lines]
    | the mistake | the candidate |
    |---|---|
    | the last bucket is never full, and never sent | `wait()` first calls the method that sends |
    | a counter goes on in the next step | `zero_grad()` or `wait()` sets it as `bind()` did |
    | a counter of a bucket does | a loop over buckets sets it as `__init__` did |
    | a buffer keeps its sums | the loop over buckets in `zero_grad()` fills it with zeros |
    | hooks stay | the loop over handles removes them |

    Only a state that the subject changes elsewhere is set anew. A line is added to a loop, and
    is put in the place of each line of a short loop.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from syncverify.explain.repair.source_edit import Edit, Source
from syncverify.explain.repair.structure import WORK

_STARTS: Final = ("bind", "__init__", "reset")
_CHANGING: Final = frozenset({"append", "add", "update", "extend", "insert"})
_HANDLES: Final = re.compile(r"handle|hook")
_MOST_LINES: Final = 3  # of a loop that is taken for one thing


def missing_calls(source: Source) -> Iterator[Edit]:
    """Yield lines that the classes of a file may lack; see Note [Forgotten lines]."""
    classes = [node for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)]
    for owner in classes:
        methods = {n.name: n for n in owner.body if isinstance(n, ast.FunctionDef)}
        if "wait" in methods:
            yield from _sent_by_wait(source, methods)
            yield from _set_anew(source, methods)
        for name, method in methods.items():
            if name not in _STARTS:
                yield from _in_loops(source, method, classes)


def _sent_by_wait(
    source: Source, methods: dict[str, ast.FunctionDef]
) -> Iterator[Edit]:
    """Call a method that communicates, first of all in `wait()`."""
    wait = methods["wait"]
    for name, method in methods.items():
        is_alone = len(method.args.args) == 1 and not method.args.kwonlyargs
        if name in {"wait", "bind", "unbind", "zero_grad", "__init__"} or not is_alone:
            continue
        call = f"self.{name}()"
        if WORK.search(ast.unparse(method)) and call not in ast.unparse(wait):
            yield _in_front(source, wait, call)


def _in_front(source: Source, function: ast.FunctionDef, line: str) -> Edit:
    """Add a line in front of the code of a function, after its docstring."""
    first, *rest = function.body
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        if not rest:
            return Edit.after(source.path, first, line)
        first = rest[0]
    if isinstance(first, ast.Pass):
        return Edit.instead(source.path, first, line)
    return Edit.before(source.path, first, line)


def _set_anew(source: Source, methods: dict[str, ast.FunctionDef]) -> Iterator[Edit]:
    """Set an attribute as `bind()`, `__init__()` or `reset()` did."""
    for at in filter(None, map(methods.get, ("zero_grad", "wait"))):
        for method in filter(None, map(methods.get, _STARTS)):
            for name, value in _initial(method):
                target = f"self.{name}"
                is_set = f"{target} = " in ast.unparse(at)
                if _is_changed(source.tree, name) and not is_set:
                    line = f"{target} = {ast.unparse(value)}"
                    yield Edit.after(source.path, at.body[-1], line)


def _in_loops(
    source: Source, method: ast.FunctionDef, classes: list[ast.ClassDef]
) -> Iterator[Edit]:
    """Add lines to the loops of a method over elements of a kind."""
    for loop in ast.walk(method):
        if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name):
            variable = loop.target.id
            lines = [*_lines_for(source, variable, classes)]
            if method.name == "zero_grad":
                lines += _cleared(variable, classes)
            if _HANDLES.search(variable):
                lines.append(f"{variable}.remove()")
            for line in lines:
                yield from _placed(source, loop, line)


def _placed(source: Source, loop: ast.For, line: str) -> Iterator[Edit]:
    target = line.partition(" = ")[0] if " = " in line else None
    texts = [ast.unparse(node) for node in loop.body]
    if line in texts:
        return
    for node, text in zip(loop.body, texts, strict=True):
        if target is not None and text.startswith(f"{target} = "):
            yield Edit.instead(source.path, node, line)  # another value
            return
    yield Edit.after(source.path, loop.body[-1], line)
    if len(loop.body) <= _MOST_LINES and target is None:
        for node in loop.body:
            if not isinstance(node, ast.Pass):
                yield Edit.instead(source.path, node, line)


def _lines_for(
    source: Source, variable: str, classes: list[ast.ClassDef]
) -> Iterator[str]:
    """Yield lines that give attributes of an element their first values."""
    for method in _makers(variable, classes):
        for name, value in _initial(method):
            if _is_changed(source.tree, name):
                yield f"{variable}.{name} = {_of_element(value, method, variable)}"


def _cleared(variable: str, classes: list[ast.ClassDef]) -> Iterator[str]:
    """Yield lines that fill the buffers of an element with zeros."""
    for method in _makers(variable, classes):
        for name, value in _assigned(method):
            if isinstance(value, ast.Call) and ast.unparse(value.func).endswith(
                ".zeros"
            ):
                yield f"{variable}.{name}.zero_()"


def _makers(variable: str, classes: list[ast.ClassDef]) -> Iterator[ast.FunctionDef]:
    """Yield the methods that make an element, by the name of its class."""
    for owner in classes:
        if owner.name.lower().endswith(variable.lower()):
            for node in owner.body:
                if isinstance(node, ast.FunctionDef) and node.name in _STARTS:
                    yield node


def _assigned(method: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield the attributes of `self` that a method sets, with their values."""
    for node in method.body:
        match node:
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=value):
                yield name, value
            case ast.AnnAssign(
                target=ast.Attribute(attr=name), value=ast.expr() as value
            ):
                yield name, value
            case _:
                pass


def _initial(method: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    return (each for each in _assigned(method) if _is_state(each[1]))


def _of_element(value: ast.expr, method: ast.FunctionDef, variable: str) -> str:
    """Write a first value outside of the method: its arguments are attributes there."""
    kept = {
        given.id: name
        for name, given in _assigned(method)
        if isinstance(given, ast.Name)
    }
    text = ast.unparse(value).replace("self.", f"{variable}.")
    for argument, name in kept.items():
        text = re.sub(rf"(?<![\w.]){argument}\b", f"{variable}.{name}", text)
    return text


def _is_state(value: ast.expr) -> bool:
    """Tell whether a value is a number, an empty container, or a counter of each parameter."""
    match value:
        case ast.Constant(value=int() | None):
            return True
        case ast.List(elts=[]) | ast.Dict(keys=[]):
            return True
        case ast.Call(func=ast.Name(id="set" | "list" | "dict" | "Counter"), args=[]):
            return True
        case ast.Call(func=ast.Name(id="len") | ast.Attribute(attr="fromkeys")):
            return True
        case ast.BinOp(left=ast.List(), op=ast.Mult()) | ast.DictComp():
            return True
    return False


def _is_changed(tree: ast.AST, name: str) -> bool:
    """Tell whether some code adds to an attribute, or to one of its elements."""
    return any(_changed_name(node) == name for node in ast.walk(tree))


def _changed_name(node: ast.AST) -> str | None:
    match node:
        case (
            ast.AugAssign(target=place) | ast.Assign(targets=[ast.Subscript() as place])
        ):
            pass
        case ast.Call(func=ast.Attribute(value=place, attr=attr)) if attr in _CHANGING:
            pass
        case _:
            return None
    while isinstance(place, ast.Subscript):
        place = place.value
    return place.attr if isinstance(place, ast.Attribute) else None
