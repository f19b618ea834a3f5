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

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from syncverify.explain.repair.source_edit import Edit, Function, Source, methods_of

_ANNOUNCING: Final = "set_required_accumulations"
_OF_AN_AXIS: Final = frozenset({"get_group", "get_local_rank", "size"})


def unasked_state(source: Source, function: Function) -> Iterator[Edit]:
    """Yield changes of one function; see Note [State that nothing asks]."""
    nodes, announced = [*ast.walk(function)], _announced(source)
    for node in nodes:
        yield from _counted(source, node, announced)
        yield from _axes(source, node, function)
    yield from _counters(source, nodes, announced)
    owner = source.owner_of(function)
    if owner is not None:
        yield from _flags(source, function, owner)
        yield from _keys(source, function, owner)
    yield from _saved(source, function)


def _announced(source: Source) -> list[str]:
    """List the attributes that hold the announced number of micro-batches."""
    methods = (each for each in source.functions if each.name == _ANNOUNCING)
    return [
        ast.unparse(place)
        for method in methods
        for node in ast.walk(method)
        for place, _ in _assigned(node)
        if isinstance(place, ast.Attribute)
    ]


def _counted(source: Source, node: ast.AST, announced: list[str]) -> Iterator[Edit]:
    match node:
        case ast.Compare(
            left=ast.BinOp(left=count, op=ast.Mod(), right=whole),
            ops=[ast.Eq()],
            comparators=[ast.Constant(value=0)],
        ):
            op: ast.cmpop = ast.Eq()
            wholes = [*(_times(whole, each) for each in announced), whole]
        case ast.Compare(
            left=count, ops=[ast.Eq() | ast.GtE() as op], comparators=[whole]
        ) if not isinstance(whole, ast.Constant):
            others = (each for each in announced if each not in ast.unparse(node))
            wholes = [_times(whole, each) for each in others]
        case _:
            return
    for each in wholes:
        text = ast.unparse(ast.Compare(count, [op], [each]))
        yield from source.part(node, text)


def _times(whole: ast.expr, count: str) -> ast.expr:
    return ast.BinOp(whole, ast.Mult(), ast.parse(count, mode="eval").body)


def _axes(source: Source, node: ast.AST, function: Function) -> Iterator[Edit]:
    match node:
        case ast.Call(
            func=ast.Attribute(attr=attr), args=[ast.Constant(value=int()) as number]
        ) if attr in _OF_AN_AXIS:
            names = [each.arg for each in function.args.args if each.arg != "self"]
            loops = ast.For | ast.comprehension
            targets = (n.target for n in ast.walk(function) if isinstance(n, loops))
            names += [each.id for each in targets if isinstance(each, ast.Name)]
            for name in dict.fromkeys(names):
                yield from source.part(number, name)
                yield from source.part(number, f"{name}[0]")


def _counters(
    source: Source, nodes: list[ast.AST], announced: list[str]
) -> Iterator[Edit]:
    compares = (n for n in ast.walk(source.tree) if isinstance(n, ast.Compare))
    compared = _attributes(compares)
    heads = [each for each in nodes if isinstance(each, ast.If)]
    for node in nodes:
        match node:
            case ast.AugAssign(
                target=ast.Attribute() as place, value=ast.Constant(value=1)
            ) if ast.unparse(place) not in compared:
                for head in (each for each in heads if each.lineno > node.lineno):
                    is_down = isinstance(node.op, ast.Sub)
                    for whole in ["0"] if is_down else _wholes(head, announced):
                        text = f"{ast.unparse(place)} == {whole}"
                        yield from source.part(head.test, text)


def _wholes(head: ast.If, announced: list[str]) -> Iterator[str]:
    """Yield the numbers at which a counter may be complete."""
    for part in ast.walk(head.test):
        if isinstance(part, ast.Subscript):
            whole = f"len({ast.unparse(part.value)})"
            yield from (f"{whole} * {each}" for each in announced)
            yield whole


def _flags(source: Source, function: Function, owner: ast.ClassDef) -> Iterator[Edit]:
    conditions = ast.If | ast.While | ast.IfExp
    nodes = [*ast.walk(owner)]
    asked = _attributes(n.test for n in nodes if isinstance(n, conditions))
    asked |= _attributes(n for n in nodes if isinstance(n, ast.BoolOp | ast.Compare))
    unasked = [flag for flag in _set_flags(owner) if flag not in asked]
    if _gives(function) or any(flag in _set_flags(function) for flag in unasked):
        return
    for flag in unasked:
        for guard in function.body:
            if isinstance(guard, ast.If) and isinstance(guard.body[-1], ast.Return):
                for asking in (f"not {flag}", flag):
                    text = f"{asking} or {ast.unparse(guard.test)}"
                    yield from source.part(guard.test, text)
        lines = f"if not {flag}:", "    return"
        yield source.at_start(function, *lines)


def _gives(function: Function) -> bool:
    """Tell whether a function returns a value."""
    return any(isinstance(n, ast.Return) and n.value for n in ast.walk(function))


def _set_flags(owner: ast.AST) -> list[str]:
    """List the attributes that are set to True or False."""
    pairs = (pair for node in ast.walk(owner) for pair in _assigned(node))
    flags = (
        ast.unparse(place)
        for place, value in pairs
        if isinstance(place, ast.Attribute) and isinstance(value, ast.Constant)
        if isinstance(value.value, bool)
    )
    return [*dict.fromkeys(flags)]


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the places that an assignment sets, each with its value."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=places)], value=ast.Tuple(elts=values)):
            yield from zip(places, values, strict=False)
        case ast.Assign(targets=[place], value=value):
            yield place, value


def _attributes(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the attributes in expressions."""
    parts = (part for node in nodes for part in ast.walk(node))
    return {ast.unparse(part) for part in parts if isinstance(part, ast.Attribute)}


def _saved(source: Source, function: Function) -> Iterator[Edit]:
    pairs = [pair for node in ast.walk(function) for pair in _assigned(node)]
    texts = dict.fromkeys((ast.unparse(place), ast.unparse(v)) for place, v in pairs)
    changed = {place for place, _ in texts}
    for name, place in texts:
        if name.isidentifier() and place in changed and (place, name) not in texts:
            line = f"{place} = {name}"
            for node in ast.walk(function):
                if isinstance(node, ast.Try) and node.finalbody:
                    yield source.at_end(node.finalbody, line)
            yield source.at_end(function.body, line)


def _keys(source: Source, function: Function, owner: ast.ClassDef) -> Iterator[Edit]:
    nodes = [*ast.walk(function)]
    keys = {*map(_key_of, nodes)}
    for node in nodes:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Tuple(elts=parts) as whole
            ) if name in keys:
                for call in _calls(owner, function, whole):
                    text = ", ".join([*map(ast.unparse, parts), call])
                    yield from source.part(whole, f"({text})")


def _key_of(node: ast.AST) -> str | None:
    """Return the name by which an expression looks into a dict."""
    match node:
        case ast.Subscript(slice=ast.Name(id=name)):
            return name
        case ast.Call(
            func=ast.Attribute(attr="get" | "pop" | "setdefault"),
            args=[ast.Name(id=name), *_],
        ):
            return name
    return None


def _calls(owner: ast.ClassDef, function: Function, key: ast.Tuple) -> Iterator[str]:
    """Yield calls of methods that say something of one element that a key is about."""
    calls = (each for each in ast.walk(key) if isinstance(each, ast.Call))
    given = (part for call in calls for part in call.args)
    elements = dict.fromkeys(e.id for e in given if isinstance(e, ast.Name))
    for name, method in methods_of(owner).items():
        is_of_one = method is not function and len(method.args.args) == 2
        if is_of_one and _gives(method) and f"self.{name}(" not in ast.unparse(key):
            yield from (f"self.{name}({element})" for element in elements)
