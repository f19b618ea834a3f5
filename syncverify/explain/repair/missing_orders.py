"""Candidates for a missing order: waits in the user's names, and where to put them."""

import ast
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from syncverify.explain.repair.game import Game
from syncverify.explain.repair.scope import NOTE, Name, Scope
from syncverify.explain.repair.source_edit import Edit, Source, source_of
from syncverify.judge.ordering.missing_waits import (
    BeforeReturn,
    Edge,
    RecordStream,
    WaitForStream,
    WaitForWork,
)
from syncverify.judge.ordering.races import Race
from syncverify.judge.ordering.remedies import Disorder
from syncverify.trace.records import DEFAULT_STREAM, HOST
from syncverify.trace.source_lines import NoLine, Origin, SourceLine, lines_among

_CURRENT = "torch.cuda.current_stream()"
_DEFAULT = "torch.cuda.default_stream()"


class _Place(NamedTuple):
    """A statement of the subject, before or after which lines are added."""

    source: Source
    node: ast.stmt
    is_before: bool  # whether the lines come before it

    def edit(self, *lines: str) -> Edit:
        make = self.source.before if self.is_before else self.source.after
        return make(self.node, *lines)


def candidates(disorder: Disorder, game: Game) -> Iterator[Edit]:
    """Yield changes that may order the work of a disorder, the likeliest first."""
    edges = disorder.remedy.edges if disorder.remedy else ()
    scopes: dict[Edit, Scope] = {}
    # A training loop may run on a stream of its own, so the default one is named last.
    for names_default in (False, True):
        for edge in edges:
            for place in _places(edge, disorder, game):
                note = place.edit(NOTE)
                if note not in scopes:
                    scopes[note] = game.look(note)
                for lines in _waits(_as_noted(edge, note), scopes[note]):
                    if names_default == (_DEFAULT in "".join(lines)):
                        yield from _outside_of_loops(place, lines)
                        yield place.edit(*lines)
            if isinstance(edge, WaitForWork) and not names_default:
                yield from _kept_handles(edge)


def _outside_of_loops(place: _Place, lines: Sequence[str]) -> Iterator[Edit]:
    """Yield the insertion before the outermost loop around a place that binds no name of it."""
    moved, named = place, _names_in(ast.parse("\n".join(lines)), ast.Load)
    for loop in place.source.loops_around(place.node) if place.is_before else ():
        if named & _names_in(loop, ast.Store):
            break
        moved = place._replace(node=loop)
    if moved is not place:
        yield moved.edit(*lines)


def _names_in(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    names = (each for each in ast.walk(tree) if isinstance(each, ast.Name))
    return {each.id for each in names if isinstance(each.ctx, context)}


def _as_noted(edge: Edge, note: Edit) -> Edge:
    """Return an edge with the line of its launch where the file has one line more."""
    if not (isinstance(edge, WaitForWork) and isinstance(edge.launched_at, SourceLine)):
        return edge
    line = edge.launched_at
    if line.file != note.path or line.number < note.first:
        return edge
    moved = line._replace(number=line.number + len(note.lines))
    return replace(edge, launched_at=moved)


def _statement(origin: Origin) -> tuple[Source, ast.stmt] | None:
    """Return file and statement of a line; None where no line of the subject is known."""
    if isinstance(origin, NoLine):
        return None
    source = source_of(origin.file)
    node = source.statement_at(origin.number) if source else None
    return (source, node) if source and node else None


def _ends(line: SourceLine | None) -> Iterator[_Place]:
    """Yield the end of the function that has a line: before its last `return`, or after its body."""
    source = source_of(line.file) if line else None
    function = source.function_at(line.number) if source and line else None
    if source and function:
        last = function.body[-1]
        yield _Place(source, last, is_before=isinstance(last, ast.Return))


def _places(edge: Edge, disorder: Disorder, game: Game) -> Iterator[_Place]:
    """Yield places for a wait: where the edge was tried, then the lines that led there."""
    found = disorder.found[0]
    uses = (found.second, found.first) if isinstance(found, Race) else (None, found.use)
    second, first = (lines_among((u.source, *u.callers)) if u else () for u in uses)
    point = getattr(edge, "point", None)
    if isinstance(point, BeforeReturn):
        yield from _ends(game.method(point.phase))
    if isinstance(edge, RecordStream):
        yield from _at([edge.used_at], is_before=False)
    yield from _at(second, is_before=True)
    yield from _at(first, is_before=False)
    for line in (*first[:1], *map(game.method, ("wait", "zero_grad"))):
        yield from _ends(line)


def _at(lines: Sequence[Origin], *, is_before: bool) -> Iterator[_Place]:
    for source, node in filter(None, map(_statement, lines)):
        # Outside of `with torch.cuda.stream(...)`, another stream is the current one.
        contexts = (e for e in source.around(node) if isinstance(e, ast.With))
        for place in (node, *contexts):
            yield _Place(source, place, is_before=is_before)


def _waits(edge: Edge, scope: Scope) -> Iterator[tuple[str, ...]]:
    match edge:
        case WaitForStream(waiting=waiting, awaited=awaited):
            for other in _names(awaited, scope):
                if waiting == HOST:
                    yield _in_loop(other, f"{other.text}.synchronize()")
                    continue
                for own in _names(waiting, scope):
                    if not (own.loop and other.loop) and own != other:
                        text = f"{own.text}.wait_stream({other.text})"
                        yield _in_loop(own if own.loop else other, text)
        case WaitForWork(waiting=waiting, launched_at=line):
            for work in scope.works.get(line, ()):
                text = f"{work.text}.wait()"
                if scope.current in ({waiting}, {HOST}) or waiting == HOST:
                    yield _in_loop(work, text)
                    continue
                for stream in _names(waiting, scope):
                    if not stream.loop:
                        guard = f"with torch.cuda.stream({stream.text}):"
                        yield _in_loop(work, guard, f"    {text}")
        case RecordStream(stream=stream):
            users = [user for user in _names(stream, scope) if not user.loop]
            for tensor, user in itertools.product(scope.tensors, users):
                call = f"{tensor.text}.record_stream({user.text})"
                yield _in_loop(tensor, call)


def _names(stream: str, scope: Scope) -> Iterator[Name]:
    if scope.current == {stream}:
        yield Name(_CURRENT)
    if stream == DEFAULT_STREAM:
        yield Name(_DEFAULT)
    yield from scope.streams.get(stream, ())


def _in_loop(name: Name, *lines: str) -> tuple[str, ...]:
    if name.is_optional:
        lines = (f"if {name.text} is not None:", *(f"    {line}" for line in lines))
    if not name.loop:
        return lines
    return (f"{name.loop}:", *(f"    {line}" for line in lines))


def _kept_handles(edge: WaitForWork) -> Iterator[Edit]:
    """Wait in the line that launches, where the handle is dropped."""
    match _statement(edge.launched_at):
        case source, ast.Expr(value=ast.Call() as call) as node:
            yield source.instead(node, f"{ast.unparse(call)}.wait()")
        case source, ast.Assign(
            targets=[ast.Name() | ast.Attribute() as target]
        ) as node:
            yield source.after(node, f"{ast.unparse(target)}.wait()")
        case source, node:  # each asynchronous call inside, such as of a comprehension
            for each in (e for e in ast.walk(node) if isinstance(e, ast.Call)):
                if "async_op" in {keyword.arg for keyword in each.keywords}:
                    yield from source.part(each, f"{ast.unparse(each)}.wait()")
