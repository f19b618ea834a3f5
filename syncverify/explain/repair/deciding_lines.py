"""Lines of a subject that run where a violation shows, and in no scenario that is right.

Note [Lines that decide]
    Lines of the plain path run in every scenario, and say nothing. A line decides if it ran
    in the failing scenario and in none of some scenarios that hold every property: a branch
    of an event, of a dtype, of a second bucket. Often there is none, for a wrong statement of
    the plain path runs everywhere; then nothing is shown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from syncverify.explain.repair.slow_runs import SLOW
from syncverify.judge.properties import check
from syncverify.playing.sim import SimBackend
from syncverify.search.drawing import Drawing
from syncverify.search.found_violation import FoundViolation
from syncverify.search.line_probe import PlayedLines, played_lines
from syncverify.subjects.subject import Subject
from syncverify.trace.source_lines import CodeLine, SourceLine, shown_path, with_code

_NUM_DRAWN: Final = 6
_MAX_RANKS: Final = 4
_SEED: Final = 0
_NUM_SHOWN: Final = 3
# A difference of many lines is another way through the subject, and no line decides.
_MAX_DECIDING: Final = 6

Lines = Mapping[str, PlayedLines]


def deciding_lines(
    found: FoundViolation, subject: Subject, backend: SimBackend
) -> tuple[CodeLine, ...]:
    """Return up to three lines with their code; see Note [Lines that decide].

    Returns:
        The lines. None where no drawn scenario is right, where many lines decide, or where the
        subject's functions cannot be probed.
    """
    if found.violation.cause in SLOW:
        return ()
    drawing = Drawing(subject.capabilities, _MAX_RANKS, _NUM_DRAWN, _SEED)
    played = ((each, backend.run(each, subject)) for each in drawing.drawn())
    right = [
        scenario
        for scenario, run in played
        if run.fault is None and not check(scenario, run, subject.capabilities)
    ]
    if not right:
        return ()
    with played_lines(subject.factory) as failing:
        backend.run(found.scenario, subject, found.schedule)
    # Right scenarios are played once more: probes cost more than a play, and only these count.
    with played_lines(subject.factory) as passing:
        for scenario in right:
            backend.run(scenario, subject)
    deciding = [*_only_in(failing, passing)]
    return with_code(deciding[:_NUM_SHOWN]) if len(deciding) <= _MAX_DECIDING else ()


def _only_in(failing: Lines, passing: Lines) -> Iterator[SourceLine]:
    """Yield the statements that ran in the first scenario alone, in the order of files."""
    for path, lines in sorted(failing.items()):
        known = passing[path].played if path in passing else frozenset[int]()
        new = lines.played - known
        functions = _functions(path) if new else []
        for number in sorted(new):
            inside = [each for each in functions if each[0] < number <= each[1]]
            if inside:
                name = max(inside)[2]  # the innermost function starts last
                yield SourceLine(shown_path(path), number, name)


def _functions(path: str) -> list[tuple[int, int, str]]:
    """List first line, last line and name of the functions in a file."""
    try:
        tree = ast.parse(Path(path).read_text("utf-8"))
    # The file may be gone, or changed since its import.
    except (OSError, SyntaxError, UnicodeDecodeError):
        return []
    return [
        (node.lineno, node.end_lineno or node.lineno, node.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
