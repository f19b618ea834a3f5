"""Candidates for a state that code keeps and does not read, or reads too seldom.

Note [State that nothing asks]
    | the mistake | the candidate |
    |---|---|
    | `ready == len(x)`, whatever number of micro-batches was announced | times that number |
    | `ready % len(x) == 0`: true more than once | `ready == len(x)`, also times that number |
    | a flag that no condition reads | the `if` that returns early asks it, or a new one does |
    | a counter that no condition reads | an `if` after it asks whether it is complete |
    | `was = self.flag`, and no line that sets it back | `finally`, or the last line, does |
    | a key of a dict that leaves out what sets elements apart | a part more: what a method says |
    | the number of an axis, such as `get_group(0)` | an argument, its first element |
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from syncverify.explain.repair.source_edit import Edit, Function, Source, methods_of

_ANNOUNCING: Final = "set_required_accumulations"
_OF_AN_AXIS: Final = frozenset({"get_group", "get_local_rank", "size"})
_LOOKUPS: Final = frozenset({"get", "pop", "setdefault"})


def unasked_state(source: Source, function: Function) -> Iterator[Edit]:
    """Yield changes of one function; see Note [State that nothing asks]."""
    owner = source.owner_of(function)
    nodes = [*ast.walk(function)]
    for node in nodes:
        if isinstance(node, ast.Compare):
            yield from _counted(source, node, _announced(source))
        elif isinstance(node, ast.Call):
            yield from _axes(source, node, _names(function))
    yield from _counters(source, nodes)
    if owner is not None:
        yield from _flags(source, function, owner)
        yield from _keys(source, function, owner)
    yield from _saved(source, function)


def _announced(source: Source) -> list[str]:
    """List the attributes that hold the announced number of micro-batches."""
    return [
        ast.unparse(target)
        for method in ast.walk(source.tree)
        if isinstance(method, ast.FunctionDef) and method.name == _ANNOUNCING
        for node in ast.walk(method)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute)
    ]


def _counted(source: Source, node: ast.Compare, announced: list[str]) -> Iterator[Edit]:
    """Compare with the announced number, and with the whole in the place of a multiple."""
    match node:
        case ast.Compare(
            left=ast.BinOp(left=count, op=ast.Mod(), right=whole),
            ops=[ast.Eq()],
            comparators=[ast.Constant(value=0)],
        ):
            texts = [_compared(count, ast.Eq(), whole, each) for each in announced]
            texts.append(_compared(count, ast.Eq(), whole, ""))
        case ast.Compare(
            left=count, ops=[ast.Eq() | ast.GtE() as op], comparators=[whole]
        ) if not isinstance(whole, ast.Constant):
            others = (each for each in announced if each not in ast.unparse(node))
            texts = [_compared(count, op, whole, each) for each in others]
        case _:
            return
    for text in texts:
        yield from Edit.part(source, node, text)


def _compared(count: ast.expr, op: ast.cmpop, whole: ast.expr, times: str) -> str:
    if times:
        whole = ast.BinOp(whole, ast.Mult(), ast.parse(times, mode="eval").body)
    return ast.unparse(ast.Compare(count, [op], [whole]))


def _counters(source: Source, nodes: list[ast.AST]) -> Iterator[Edit]:
    """Let an `if` ask a counter that its function changes, and that no comparison reads."""
    compared = {
        name
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Compare)
        for name in _attributes(node)
    }
    for node in nodes:
        match node:
            case ast.AugAssign(
                target=ast.Attribute() as place, value=ast.Constant(value=1)
            ) if ast.unparse(place) not in compared:
                for head in nodes:
                    if isinstance(head, ast.If) and head.lineno > node.lineno:
                        for whole in _wholes(source, node, head):
                            text = f"{ast.unparse(place)} == {whole}"
                            yield from Edit.part(source, head.test, text)


def _wholes(source: Source, node: ast.AugAssign, head: ast.If) -> Iterator[str]:
    """Yield the numbers at which a counter may be complete."""
    if isinstance(node.op, ast.Sub):
        yield "0"
        return
    for part in ast.walk(head.test):
        if isinstance(part, ast.Subscript):
            whole = f"len({ast.unparse(part.value)})"
            yield from (f"{whole} * {each}" for each in _announced(source))
            yield whole


def _flags(source: Source, function: Function, owner: ast.ClassDef) -> Iterator[Edit]:
    """Ask a flag that is set and that no condition reads."""
    asked = {name for test in _tests(owner) for name in _attributes(test)}
    unasked = [flag for flag in _set_flags(owner) if flag not in asked]
    if _gives(function) or any(flag in _set_flags(function) for flag in unasked):
        return
    for flag in unasked:
        for guard in function.body:
            if isinstance(guard, ast.If) and isinstance(guard.body[-1], ast.Return):
                for asking in (f"not {flag}", flag):
                    text = f"{asking} or {ast.unparse(guard.test)}"
                    yield from Edit.part(source, guard.test, text)
        lines = f"if not {flag}:", "    return"
        yield Edit.at_start(source.path, function, *lines)


def _gives(function: Function) -> bool:
    """Tell whether a function returns a value."""
    return any(isinstance(n, ast.Return) and n.value for n in ast.walk(function))


def _set_flags(owner: ast.AST) -> list[str]:
    """List the attributes of `self` that are set to True or False."""
    found: dict[str, None] = {}
    for node in ast.walk(owner):
        for target, value in _pairs(node):
            is_flag = isinstance(value, ast.Constant) and isinstance(value.value, bool)
            if is_flag and isinstance(target, ast.Attribute):
                found[ast.unparse(target)] = None
    return [*found]


def _pairs(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the places that an assignment sets, each with its value."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=places)], value=ast.Tuple(elts=values)):
            yield from zip(places, values, strict=False)
        case ast.Assign(targets=[place], value=value):
            yield place, value


def _tests(owner: ast.ClassDef) -> Iterator[ast.expr]:
    for node in ast.walk(owner):
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            yield node.test
        elif isinstance(node, ast.BoolOp | ast.Compare):
            yield node


def _attributes(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute):
            yield ast.unparse(part)


def _saved(source: Source, function: Function) -> Iterator[Edit]:
    """Set an attribute back whose value was saved in a name."""
    pairs = [pair for node in ast.walk(function) for pair in _pairs(node)]
    texts = {(ast.unparse(place), ast.unparse(value)) for place, value in pairs}
    changed = {place for place, _ in texts}
    for name, place in texts:
        if name.isidentifier() and place in changed and (place, name) not in texts:
            line = f"{place} = {name}"
            for node in ast.walk(function):
                if isinstance(node, ast.Try) and node.finalbody:
                    yield Edit.at_end(source.path, node.finalbody, line)
            yield Edit.at_end(source.path, function.body, line)


def _keys(source: Source, function: Function, owner: ast.ClassDef) -> Iterator[Edit]:
    """Add to a key of a dict what a method says about the element."""
    keys = {name for node in ast.walk(function) for name in _looked_up(node)}
    for node in ast.walk(function):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Tuple(elts=parts) as whole
            ) if name in keys:
                for call in _calls(owner, function, whole):
                    text = ", ".join([*map(ast.unparse, parts), call])
                    yield from Edit.part(source, whole, f"({text})")
            case _:
                pass


def _looked_up(node: ast.AST) -> Iterator[str]:
    """Yield the names by which an expression looks into a dict."""
    match node:
        case ast.Subscript(slice=ast.Name(id=name)):
            yield name
        case ast.Call(func=ast.Attribute(attr=attr), args=[ast.Name(id=name), *_]):
            if attr in _LOOKUPS:
                yield name
        case _:
            pass


def _calls(owner: ast.ClassDef, function: Function, key: ast.Tuple) -> Iterator[str]:
    """Yield calls of methods that say something of one element that a key is about."""
    key_text = ast.unparse(key)
    elements = dict.fromkeys(
        part.id
        for call in ast.walk(key)
        if isinstance(call, ast.Call)
        for part in call.args
        if isinstance(part, ast.Name)
    )
    for method in methods_of(owner).values():
        if (
            method is not function
            and _gives(method)
            and len(method.args.args) == 2
            and f"self.{method.name}(" not in key_text
        ):
            yield from (f"self.{method.name}({element})" for element in elements)


def _axes(source: Source, node: ast.Call, names: Iterable[str]) -> Iterator[Edit]:
    """Put an argument of the function, or its first element, in the place of a number."""
    match node:
        case ast.Call(
            func=ast.Attribute(attr=attr), args=[ast.Constant(value=int()) as number]
        ) if attr in _OF_AN_AXIS:
            for name in names:
                yield from Edit.part(source, number, name)
                yield from Edit.part(source, number, f"{name}[0]")
        case _:
            pass


def _names(function: Function) -> list[str]:
    """List the arguments of a function and the variables of its loops."""
    arguments = [each.arg for each in function.args.args if each.arg != "self"]
    loops = [
        node.target.id
        for node in ast.walk(function)
        if isinstance(node, ast.For | ast.comprehension)
        and isinstance(node.target, ast.Name)
    ]
    return [*dict.fromkeys([*arguments, *loops])]
