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
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from syncverify.explain.repair.ran_lines import RanLines
from syncverify.explain.repair.source_edit import Function, Source, blocks_of, source_of
from syncverify.trace.source_lines import SourceLine

_COLLECTIVES: Final = frozenset({
    "all_reduce", "all_reduce_coalesced", "all_to_all_single", "allreduce", "reduce",
    "reduce_scatter", "reduce_scatter_tensor",
})  # fmt: skip
_Exit = ast.Return | ast.Raise | ast.Continue | ast.Break
_Decision = ast.If | ast.For | ast.AsyncFor | ast.While | ast.Match
_MAX_FUNCTIONS: Final = 12


def skipped_launches(
    ran: RanLines, rightly: Collection[SourceLine] | None = None
) -> Iterator[SourceLine]:
    """Yield statements that ran, and kept some line with a collective from running.

    `rightly` has statements that also do so where all is right; None if that is not known.
    """
    files = _files(ran)
    names, seen = [*sorted(_COLLECTIVES)], set[str]()
    found, uncalled = dict[SourceLine, bool](), list[SourceLine]()
    while names and len(seen) < len(_COLLECTIVES) + _MAX_FUNCTIONS:
        name = names.pop(0)
        seen.add(name)
        ways = ((each, *way) for each in files for way in each.ways_to(name))
        for file, function, last in ways:
            if end := file.where_it_ends(last):
                found[file.source.line(end.lineno)] = file.is_empty_loop(end)
            elif file.is_untouched(function):
                names.append(function.name)
            elif file.passes_on(last, name):
                # All functions of the name: one may override another one.
                untouched = [it.is_untouched(each) for it, each in _named(files, name)]
                if untouched and all(untouched):
                    uncalled.append(file.source.line(last.lineno))
        names = [each for each in dict.fromkeys(names) if each not in seen]
    # A loop of which nothing ran gives way to another place.
    full = {at for at, is_empty in found.items() if not is_empty}
    others = {(at.path, at.function) for at in full}
    places = [at for at in found if at in full or (at.path, at.function) not in others]
    wrong = [at for at in places if rightly is not None and at not in rightly]
    yield from [at for at in places if at in {*full, *wrong}] or places or uncalled


def function_named(name: str, ran: RanLines) -> SourceLine | None:
    """Return the first line of the function of a name that ran; None of several."""
    found = [
        file.source.line(each.lineno)
        for file, each in _named(_files(ran), name)
        if not file.is_untouched(each)
    ]
    return found[0] if len(found) == 1 else None


def _named(files: list[_RanFile], name: str) -> Iterator[tuple[_RanFile, Function]]:
    for file in files:
        yield from ((file, each) for each in file.source.functions if each.name == name)


def _files(ran: RanLines) -> list[_RanFile]:
    sources = filter(None, map(source_of, sorted(ran)))
    return [_RanFile(source, ran[source.path]) for source in sources]


@dataclass(frozen=True, slots=True)
class _RanFile:
    """A file of which some lines ran."""

    source: Source
    ran: set[int]

    def is_untouched(self, function: Function) -> bool:
        """Tell whether no line of a function ran."""
        first, last = function.body[0].lineno, function.end_lineno or 0
        return self.ran.isdisjoint(range(first, last + 1))

    def ways_to(self, name: str) -> Iterator[tuple[Function, ast.stmt]]:
        """Yield all simple statements that name a function, each after the function that has it."""
        for function in self.source.functions:
            for statement in _statements_in(function.body):
                is_named = name in map(_name_of, ast.walk(statement))
                if not blocks_of(statement) and is_named:
                    yield function, statement

    def where_it_ends(self, last: ast.stmt) -> ast.stmt | None:
        """Return the last statement that ran on the way to one that did not."""
        outer, block = self.source.places[last]
        if self._did_run(last):
            is_one_line = outer.lineno == last.lineno
            return outer if is_one_line and not isinstance(outer, Function) else None
        inner = last
        while True:
            before = block[: block.index(inner)]
            if exits := [each for each in before if self._leaves(each)]:
                return exits[-1]
            if any(map(self._did_run, before)) or isinstance(outer, Function):
                return None
            if isinstance(outer, _Decision) and self._did_run(outer):
                return outer
            inner, (outer, block) = outer, self.source.places[outer]

    def is_empty_loop(self, node: ast.stmt) -> bool:
        """Tell whether a statement is a loop of which nothing inside ran."""
        loops = ast.For | ast.AsyncFor | ast.While
        return isinstance(node, loops) and not self._did_run(node.body[0])

    def passes_on(self, last: ast.stmt, name: str) -> bool:
        """Tell whether the statement at the end of a way ran, and names a function without a call."""
        calls = (each.func for each in ast.walk(last) if isinstance(each, ast.Call))
        return name not in map(_name_of, calls) and self._did_run(last)

    def _did_run(self, statement: ast.stmt) -> bool:
        """Tell whether a statement ran; of one with blocks, whether its first lines did."""
        inner = [block[0].lineno for block in blocks_of(statement)]
        end = min(inner) - 1 if inner else statement.end_lineno or statement.lineno
        lines = range(statement.lineno, max(end, statement.lineno) + 1)
        return not self.ran.isdisjoint(lines)

    def _leaves(self, statement: ast.stmt) -> bool:
        """Tell whether a statement, or one inside of it, left the block."""
        exits = (each for each in ast.walk(statement) if isinstance(each, _Exit))
        return any(map(self._did_run, exits))


def _statements_in(block: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in block:
        if not isinstance(statement, Function | ast.ClassDef):  # a function of its own
            yield statement
            for inner in blocks_of(statement):
                yield from _statements_in(inner)


def _name_of(node: ast.AST) -> str | None:
    """Return the name of a function in an expression such as `name` or `object.name`."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return None
