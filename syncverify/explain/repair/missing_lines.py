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

Note [Values to set back]
    | left over | lines at the end of `zero_grad()` or `wait()` |
    |---|---|
    | `self.count` is 2, was 0 | `self.count = 0` |
    | `self.handles` holds 1 element, held 0 | `self.handles.clear()` |
    | `self.count[p0]` is 2, was 0 | a loop over keys, or indices: `self.count[each] = 0` |
    | `self.buckets[0].ready` holds 1 element | a loop over the buckets: `each.ready.clear()` |
"""

import ast
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Final

from syncverify.explain.repair.mutations import WORK
from syncverify.explain.repair.source_edit import Edit, Source, methods_of
from syncverify.search.plain_state import LeftOver

_STARTS: Final = ("bind", "__init__", "reset")
_ENDS: Final = ("zero_grad", "wait")
_CHANGING: Final = frozenset({"append", "add", "update", "extend", "insert"})
_HANDLES: Final = re.compile(r"handle|hook")
_MOST_LINES: Final = 3  # of a loop that is taken for one thing
_INDENT: Final = "    "


def missing_calls(source: Source) -> Iterator[Edit]:
    """Yield lines that the classes of a file may lack; see Note [Forgotten lines]."""
    for owner in source.classes:
        methods = methods_of(owner)
        if "wait" in methods:
            yield from _sent_by_wait(source, methods)
            yield from _set_anew(source, methods)
        for name, method in methods.items():
            loops = [] if name in _STARTS else [*ast.walk(method)]
            for loop in loops:
                if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name):
                    for line in [*_lines_for(source, loop.target.id, name)]:
                        yield from _placed(source, loop, line)


def _sent_by_wait(
    source: Source, methods: dict[str, ast.FunctionDef]
) -> Iterator[Edit]:
    wait = methods["wait"]
    for name, method in methods.items():
        call = f"self.{name}()"
        is_alone = len(method.args.args) == 1 and not method.args.kwonlyargs
        is_own = name not in {*_ENDS, "bind", "unbind", "__init__"} and is_alone
        if (
            is_own
            and WORK.search(ast.unparse(method))
            and call not in ast.unparse(wait)
        ):
            yield source.at_start(wait, call)


def _set_anew(source: Source, methods: dict[str, ast.FunctionDef]) -> Iterator[Edit]:
    for at in filter(None, map(methods.get, _ENDS)):
        for method in filter(None, map(methods.get, _STARTS)):
            for name, value in _initial(source, method):
                target = f"self.{name}"
                if f"{target} = " not in ast.unparse(at):
                    line = f"{target} = {ast.unparse(value)}"
                    yield source.after(at.body[-1], line)


def _lines_for(source: Source, variable: str, method_name: str) -> Iterator[str]:
    """Yield lines that set attributes of an element of a loop anew, clear it or remove it."""
    makers = [
        maker
        for owner in source.classes
        if owner.name.lower().endswith(variable.lower())
        for name, maker in methods_of(owner).items()
        if name in _STARTS
    ]
    for maker in makers:
        for name, value in _initial(source, maker):
            yield f"{variable}.{name} = {_of_element(value, maker, variable)}"
    if method_name == "zero_grad":
        for name, value in itertools.chain.from_iterable(map(_assigned, makers)):
            match value:
                case ast.Call(func=ast.Attribute(attr="zeros")):
                    yield f"{variable}.{name}.zero_()"
    if _HANDLES.search(variable):
        yield f"{variable}.remove()"


def _placed(source: Source, loop: ast.For, line: str) -> Iterator[Edit]:
    target = line.partition(" = ")[0] if " = " in line else None
    texts = [ast.unparse(node) for node in loop.body]
    if line in texts:
        return
    for node, text in zip(loop.body, texts, strict=True):
        if target is not None and text.startswith(f"{target} = "):
            yield source.instead(node, line)  # another value
            return
    yield source.after(loop.body[-1], line)
    if len(loop.body) <= _MOST_LINES and target is None:
        for node in loop.body:
            if not isinstance(node, ast.Pass):
                yield source.instead(node, line)


def _assigned(method: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield the attributes of `self` that a method sets, with their values."""
    for node in method.body:
        match node:
            case (
                ast.Assign(targets=[ast.Attribute(attr=name)], value=value)
                | ast.AnnAssign(
                    target=ast.Attribute(attr=name), value=ast.expr() as value
                )
            ):
                yield name, value


def _initial(source: Source, method: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield the attributes that a method sets and other code changes, with their values."""
    for name, value in _assigned(method):
        if _is_state(value) and name in map(_changed_name, ast.walk(source.tree)):
            yield name, value


def _of_element(value: ast.expr, method: ast.FunctionDef, variable: str) -> str:
    """Write a first value outside of the method: its arguments are attributes there."""
    text = ast.unparse(value).replace("self.", f"{variable}.")
    for name, given in _assigned(method):
        if isinstance(given, ast.Name):
            text = re.sub(rf"(?<![\w.]){given.id}\b", f"{variable}.{name}", text)
    return text


def _is_state(value: ast.expr) -> bool:
    match value:
        case (
            ast.Constant(value=int() | None)
            | ast.List(elts=[])
            | ast.Dict(keys=[])
            | ast.Call(func=ast.Name(id="set" | "list" | "dict" | "Counter"), args=[])
            | ast.Call(func=ast.Name(id="len") | ast.Attribute(attr="fromkeys"))
            | ast.BinOp(left=ast.List(), op=ast.Mult())
            | ast.DictComp()
        ):
            return True
    return False


def _changed_name(node: ast.AST) -> str | None:
    """Return the name of an attribute that a node adds to, or to one of its elements."""
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


def set_back(source: Source, left_over: Iterable[LeftOver]) -> Iterator[Edit]:
    """Yield lines that set all values back; see Note [Values to set back]."""
    by_pattern = {each.pattern: each for each in left_over}
    lines = [_set_back(each) for each in by_pattern.values()]
    if not lines or not all(lines):
        return
    together = [line for each in lines for line in each]
    for owner in source.classes:
        methods = methods_of(owner)
        if methods.keys() >= {*_ENDS}:
            for name in _ENDS:
                yield source.at_end(methods[name].body, *together)


def _set_back(left: LeftOver) -> list[str]:
    """Return lines that set the values of one pattern back; none where there is no short way."""
    if left.is_size:
        value = ".clear()" if left.before.size == 0 else ""
    else:
        value = f" = {left.before.word}" if left.before.is_code else ""
    if not value:
        return []
    *_, last = left.parts
    lines, place = list[str](), "self"
    for part in left.parts:
        if not part.is_any:
            place += part.text
        elif part is last and not left.is_size:
            keys = place if part.kind == "key" else f"range(len({place}))"
            variable = "key" if part.kind == "key" else "index"
            lines.append(f"{_INDENT * len(lines)}for {variable} in {keys}:")
            place += f"[{variable}]"
        else:
            elements = f"{place}.values()" if part.kind == "key" else place
            lines.append(f"{_INDENT * len(lines)}for each in {elements}:")
            place = "each"
    return [*lines, f"{_INDENT * len(lines)}{place}{value}"]
