"""The statement that keeps a subject from a collective, found in its source.

Note [What keeps a line from running]
    A line with a collective that did not run lies behind a statement that did: the last one
    on the way to it. That is a condition or a loop of which nothing inside ran, or one that
    left the block before. If no line of a function ran, the same holds for the lines that name
    the function, since a call or a hook would have led to it. If such a line ran, and it is all
    that there is, it made a hook that nobody called. A loop may be rightly empty: it gives way to
    another statement of its function, and to those of all functions unless it is known to be
    filled where all is right.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from syncverify.explain.repair.step_lines import RanLines
from syncverify.trace.source_lines import SourceLine, shown_path

_COLLECTIVES: Final = frozenset(
    {
        "all_reduce",
        "all_reduce_coalesced",
        "all_to_all_single",
        "allreduce",
        "reduce",
        "reduce_scatter",
        "reduce_scatter_tensor",
    }
)
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Exit = ast.Return | ast.Raise | ast.Continue | ast.Break
_Decision = ast.If | ast.For | ast.AsyncFor | ast.While | ast.Match
_MAX_FUNCTIONS: Final = 12


def skipped_launches(
    ran: RanLines, rightly: Collection[SourceLine] | None = None
) -> Iterator[SourceLine]:
    """Yield statements that ran, and kept some line with a collective from running.

    Args:
        ran: The lines that ran.
        rightly: Statements that also do so where all is right; None if that is not known.

    Yields:
        Statements, the loops that are rightly empty only where there is no other one.
    """
    sources = _sources(ran)
    names, seen = [*sorted(_COLLECTIVES)], set[str]()
    found, uncalled = dict[SourceLine, bool](), list[SourceLine]()
    while names and len(seen) < len(_COLLECTIVES) + _MAX_FUNCTIONS:
        name = names.pop(0)
        seen.add(name)
        for source, way in _ways_in(sources, name):
            if place := source.where_it_ends(way):
                found[place] = source.is_empty_loop(place)
            elif source.is_untouched(way.function):
                names.append(way.function.name)
            elif source.passes_on(way, name) and _is_uncalled(sources, name):
                uncalled.append(source.end_of(way))
        names = [each for each in dict.fromkeys(names) if each not in seen]
    yield from _places_left(found, rightly) or uncalled


def _places_left(
    found: Mapping[SourceLine, bool], rightly: Collection[SourceLine] | None
) -> list[SourceLine]:
    """Return places without the empty loops that give way to another place.

    Args:
        found: Places, and whether each is a loop of which nothing ran.
        rightly: Places where all is right; None if they are not known.
    """
    others = {(at.path, at.function) for at, is_empty in found.items() if not is_empty}
    places = [
        at
        for at, is_empty in found.items()
        if not is_empty or (at.path, at.function) not in others
    ]
    reasons = [
        at
        for at in places
        if not found[at] or (rightly is not None and at not in rightly)
    ]
    return reasons or places


def _ways_in(sources: list[_Source], name: str) -> Iterator[tuple[_Source, _Way]]:
    return ((source, way) for source in sources for way in source.ways_to(name))


def _is_uncalled(sources: list[_Source], name: str) -> bool:
    """Tell whether no line ran of all functions of a name: one may override another one."""
    untouched = [
        source.is_untouched(function)
        for source in sources
        for function in source.functions()
        if function.name == name
    ]
    return bool(untouched) and all(untouched)


def function_named(name: str, ran: RanLines) -> SourceLine | None:
    """Return the first line of the function of a name that ran; None of several."""
    found = [
        SourceLine(shown_path(source.file), function.lineno, name)
        for source in _sources(ran)
        for function in source.functions()
        if function.name == name and not source.is_untouched(function)
    ]
    return found[0] if len(found) == 1 else None


def _sources(ran: RanLines) -> list[_Source]:
    sources = list[_Source]()
    for file in sorted(ran):
        # The file may be gone, or changed since the import.
        with contextlib.suppress(OSError, SyntaxError, UnicodeDecodeError):
            text = Path(file).read_text("utf-8")
            sources.append(_Source(file, ast.parse(text), ran[file]))
    return sources


@dataclass(frozen=True, slots=True)
class _Way:
    """Statements around each other in a function.

    Attributes:
        statements: The statements, the innermost one last.
        blocks: The block in which each statement stands.
        function: The function.
    """

    statements: tuple[ast.stmt, ...]
    blocks: tuple[list[ast.stmt], ...]
    function: _Function


@dataclass(frozen=True, slots=True)
class _Source:
    """A file of which some lines ran.

    Attributes:
        file: Path of the file.
        tree: The parsed file.
        ran: Numbers of the lines that ran.
    """

    file: str
    tree: ast.Module
    ran: set[int]

    def functions(self) -> Iterator[_Function]:
        """Yield all functions and methods."""
        return (each for each in ast.walk(self.tree) if isinstance(each, _Function))

    def is_untouched(self, function: _Function) -> bool:
        """Tell whether no line of a function ran."""
        first, last = function.body[0].lineno, function.end_lineno or 0
        return self.ran.isdisjoint(range(first, last + 1))

    def ways_to(self, name: str) -> Iterator[_Way]:
        """Yield the ways to all simple statements that name a function."""
        for function in self.functions():
            for way in _ways(function.body, _Way((), (), function)):
                last = way.statements[-1]
                if not _blocks_of(last) and _is_named_in(last, name):
                    yield way

    def where_it_ends(self, way: _Way) -> SourceLine | None:
        """Return the last statement that ran on the way to one that did not."""
        *around, last = way.statements
        if self._did_run(last):
            is_one_line = around and around[-1].lineno == last.lineno
            return self._place(around[-1], way) if is_one_line else None
        for depth in reversed(range(len(way.statements))):
            block = way.blocks[depth]
            before = block[: block.index(way.statements[depth])]
            exits = [each for one in before for each in self._exits(one)]
            if exits:
                return self._place(exits[-1], way)
            if any(map(self._did_run, before)):
                return None
            parent = way.statements[depth - 1] if depth else None
            if isinstance(parent, _Decision) and self._did_run(parent):
                return self._place(parent, way)
        return None

    def is_empty_loop(self, place: SourceLine) -> bool:
        """Tell whether a place is a loop of which nothing inside ran."""
        return any(
            isinstance(node, ast.For | ast.AsyncFor | ast.While)
            and node.lineno == place.number
            and not self._did_run(node.body[0])
            for node in ast.walk(self.tree)
        )

    def passes_on(self, way: _Way, name: str) -> bool:
        """Tell whether the statement at the end of a way ran, and names a function without a call."""
        last = way.statements[-1]
        calls = (each.func for each in ast.walk(last) if isinstance(each, ast.Call))
        is_called = any(_name_of(function) == name for function in calls)
        return not is_called and self._did_run(last)

    def end_of(self, way: _Way) -> SourceLine:
        """Return the first line of the statement that a way leads to."""
        return self._place(way.statements[-1], way)

    def _did_run(self, statement: ast.stmt) -> bool:
        """Tell whether a statement ran; of one with blocks, whether its first lines did."""
        inner = [block[0].lineno for block in _blocks_of(statement)]
        end = min(inner) - 1 if inner else statement.end_lineno or statement.lineno
        lines = range(statement.lineno, max(end, statement.lineno) + 1)
        return not self.ran.isdisjoint(lines)

    def _exits(self, statement: ast.stmt) -> Iterator[ast.stmt]:
        """Yield what left the block: the condition around it, or the statement."""
        for each in ast.walk(statement):
            if isinstance(each, _Exit) and self._did_run(each):
                yield statement

    def _place(self, statement: ast.stmt, way: _Way) -> SourceLine:
        name = way.function.name
        return SourceLine(shown_path(self.file), statement.lineno, name)


def _ways(block: list[ast.stmt], outer: _Way) -> Iterator[_Way]:
    for statement in block:
        if isinstance(statement, _Function | ast.ClassDef):
            continue  # a function of its own
        way = _Way(
            (*outer.statements, statement), (*outer.blocks, block), outer.function
        )
        yield way
        for inner in _blocks_of(statement):
            yield from _ways(inner, way)


def _blocks_of(statement: ast.AST) -> list[list[ast.stmt]]:
    """List the blocks of a statement, those of its handlers and cases too."""
    own = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    parts = [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]
    return [block for block in (*own, *(part.body for part in parts)) if block]


def _is_named_in(statement: ast.stmt, name: str) -> bool:
    return any(_name_of(each) == name for each in ast.walk(statement))


def _name_of(node: ast.AST) -> str | None:
    """Return the name of a function in an expression such as `name` or `object.name`."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return None
