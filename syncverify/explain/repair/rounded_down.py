"""Divisions that round a number down, where what they leave out is what is not reduced.

Note [The rest of a division]
    `len(buckets) // n` or `numel // n` leaves out the last part, unless n divides the number. A
    subject may round down for many reasons. So each division notes its numbers in a play, and it
    is shown only if its rest is as large as what was not reduced: in elements or in parameters.
"""

from __future__ import annotations

import ast
import itertools
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from syncverify.explain.repair.game import Game
from syncverify.explain.repair.source_edit import Edit, Source, source_of
from syncverify.explain.repair.step_lines import RanLines
from syncverify.judge.evidence import TooFewElements, WrongGradient
from syncverify.scenario.layout import local_shape
from syncverify.search.found_violation import FoundViolation, LeftOut
from syncverify.trace.source_lines import CodeLine, SourceLine, code_of_line, shown_path

# Causes of a gradient, or of a part of one, that other ranks' contributions are missing from.
OF_A_REST: Final = frozenset(
    {"not_reduced", "partly_wrong", "rank_contribution_missing"}
)
_MAX_DIVISIONS: Final = 8
_NOTE: Final = f"__import__({__name__!r}, fromlist=['note']).note"
_LISTENER: list[set[tuple[int, int]]] = []
_LOCK = threading.Lock()


def rounded_down(game: Game, ran: RanLines) -> Iterator[LeftOut]:
    """Yield the divisions of a subject whose rest is what is not reduced."""
    sizes = {*_sizes_left_out(game.found)}
    sources = filter(None, map(source_of, sorted(ran)))
    divisions = (pair for source in sources for pair in _divisions(source))
    for source, (node, whole, by) in itertools.islice(divisions, _MAX_DIVISIONS):
        text = f"({_NOTE}({ast.unparse(whole)}, {ast.unparse(by)}))"
        for edit in Edit.part(source, node, text):
            for number, divisor in sorted(_noted(game, edit)):
                if number % divisor in sizes:
                    yield _place(source, node, number, divisor)
                    break


def note(whole: Any, by: Any) -> Any:
    """Note the numbers of a division; return the quotient, rounded down."""
    if _LISTENER and isinstance(whole, int) and isinstance(by, int) and by > 0:
        with _LOCK:
            _LISTENER[-1].add((whole, by))
    return whole // by


@contextmanager
def _listening() -> Iterator[set[tuple[int, int]]]:
    numbers = set[tuple[int, int]]()
    _LISTENER.append(numbers)
    try:
        yield numbers
    finally:
        _LISTENER.remove(numbers)


def _noted(game: Game, edit: Edit) -> set[tuple[int, int]]:
    with _listening() as numbers:
        game.mends(edit)
    return numbers


def _place(source: Source, node: ast.expr, number: int, divisor: int) -> LeftOut:
    function = source.function_at(node.lineno)
    name = function.name if function else ""
    line = SourceLine(shown_path(source.path), node.lineno, name)
    why = f"it rounds {number} / {divisor} down, and leaves out {number % divisor}"
    return LeftOut(CodeLine(line, code_of_line(line)), why, rounds_down=True)


def _divisions(
    source: Source,
) -> Iterator[tuple[Source, tuple[ast.expr, ast.expr, ast.expr]]]:
    """Yield expressions that round a quotient down, each with its dividend and its divisor."""
    for node in ast.walk(source.tree):
        match node:
            case ast.BinOp(left=whole, op=ast.FloorDiv(), right=by):
                found = whole, by
            case ast.Call(
                func=ast.Name(id="int" | "floor") | ast.Attribute(attr="floor"),
                args=[ast.BinOp(left=whole, op=ast.Div(), right=by)],
            ):
                found = whole, by
            case _:
                continue
        if not _is_rounded_up(*found):
            yield source, (node, *found)


def _is_rounded_up(whole: ast.expr, by: ast.expr) -> bool:
    """Tell whether a dividend makes the quotient a number that is rounded up."""
    is_negative = isinstance(whole, ast.UnaryOp)
    return is_negative or f"{ast.unparse(by)} - 1" in ast.unparse(whole)


def _sizes_left_out(found: FoundViolation) -> Iterator[int]:
    """Yield the number of parameters that are not reduced, and numbers of elements."""
    violation, evidence = found.violation, found.violation.evidence
    if violation.cause != "partly_wrong":
        yield len(violation.parameters)
        rank = min(violation.ranks, default=0)
        yield sum(
            math.prod(local_shape(found.scenario.mesh, spec, rank))
            for spec in found.scenario.trainable
            if spec.name in violation.parameters
        )
    if isinstance(evidence, TooFewElements):
        yield evidence.owed_numel - evidence.exchanged_numel
    if isinstance(evidence, WrongGradient) and evidence.observed is not None:
        pairs = zip(evidence.expected or (), evidence.observed, strict=False)
        yield sum(right != seen for right, seen in pairs)
