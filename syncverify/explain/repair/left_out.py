"""Places where a subject leaves something out: no line that ran is wrong, since one is missing.

Note [Places of what is missing]
    An omission has no line of its own. These places are shown instead:

    - of a missing launch, the statement that kept it from running; see
      Note [What keeps a line from running];
    - of something left behind, the method that had to clear it;
    - of the last part of something, the division that rounds the number of parts down; see
      Note [The rest of a division];
    - of a missing wait, the line that waits for other collectives of the same launch.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from syncverify.explain.repair.game import Game
from syncverify.explain.repair.partly_waited import partly_waited
from syncverify.explain.repair.rounded_down import OF_A_REST, rounded_down
from syncverify.explain.repair.skipped_launch import function_named, skipped_launches
from syncverify.explain.repair.step_lines import RanLines, lines_of_step
from syncverify.judge.properties import check
from syncverify.judge.properties.judgement import launches_of_step
from syncverify.playing.sim import SimBackend
from syncverify.search.drawing import Drawing
from syncverify.search.found_violation import FoundViolation, LeftOut
from syncverify.subjects.subject import Subject
from syncverify.trace.source_files import is_subject_line
from syncverify.trace.source_lines import CodeLine, SourceLine, code_of_line, shown_path

_NUM_SHOWN: Final = 2
_NUM_DRAWN: Final = 6
_MAX_RANKS: Final = 4
_SEED: Final = 0
_MAX_DECORATORS: Final = 8  # lines of decorators that are skipped
_NOT_LAUNCHED: Final = frozenset({"not_reduced", "not_reset"})
# The methods that have to clear state before the next step.
_METHODS: Final[Mapping[str, str]] = {
    "gradient_left": "zero_grad",
    "stale": "zero_grad",
    "hook_left": "unbind",
    "buffer_left": "unbind",
    "attribute_left": "unbind",
    "parameters_joined": "unbind",
    "collective_after_unbind": "unbind",
    "backward_not_plain": "unbind",
}

_Plays = tuple[FoundViolation, Subject, SimBackend]


def left_out(
    found: FoundViolation, subject: Subject, backend: SimBackend
) -> tuple[LeftOut, ...]:
    """Return the places in the subject of a missing launch, a missing wait or missing cleaning.

    Returns:
        Lines with their code; none for causes that have lines of their own.
    """
    cause = found.violation.cause
    if cause == "read_before_reduced":
        return partly_waited(found, subject, backend)
    if found.starts_wrongly:
        cause = "not_reset"
    if cause not in {*_NOT_LAUNCHED, *_METHODS, *OF_A_REST}:
        return ()
    step = found.violation.evidence.step or 0
    rank = min(found.violation.ranks, default=0)
    ran = lines_of_step(found, subject, backend, rank=rank, step=step)
    if cause in OF_A_REST:
        rounding = next(rounded_down(Game(found, subject, backend), ran), None)
        if rounding is not None:
            return (rounding,)
    cleared = _clearing(cause, subject, ran)
    skipping = _skipping(cause, step, ran, (found, subject, backend))
    return tuple(itertools.chain(skipping, cleared))


def _skipping(cause: str, step: int, ran: RanLines, plays: _Plays) -> Iterator[LeftOut]:
    if cause not in _NOT_LAUNCHED:
        return
    places = [*dict.fromkeys(skipped_launches(ran))]
    if len(places) > 1:
        places = [*dict.fromkeys(skipped_launches(ran, _kept_rightly(plays)))]
    for place in places[:_NUM_SHOWN]:
        line = CodeLine(place, code_of_line(place))
        yield LeftOut(line, f"in step {step} it led to no collective")


def _kept_rightly(plays: _Plays) -> set[SourceLine] | None:
    """Return the statements that keep a collective from running in right scenarios.

    Returns:
        Statements; None where no drawn scenario with a reduction is right.
    """
    found, subject, backend = plays
    capabilities, places = subject.capabilities, list[set[SourceLine]]()
    for scenario in Drawing(capabilities, _MAX_RANKS, _NUM_DRAWN, _SEED).drawn():
        run = backend.run(scenario, subject)
        reduces = any(each.reduces for each in launches_of_step(run.ranks[0].trace, 0))
        if reduces and run.fault is None and not check(scenario, run, capabilities):
            right = replace(found, scenario=scenario, decisions=())
            ran = lines_of_step(right, subject, backend, rank=0, step=0)
            places.append({*skipped_launches(ran)})
    return set().union(*places) if places else None


def _clearing(cause: str, subject: Subject, ran: RanLines) -> Iterator[LeftOut]:
    name = _METHODS.get(cause, "")
    place = _own_method(name, subject) or function_named(name, ran) if name else None
    if place is not None:
        line = CodeLine(place, code_of_line(place))
        yield LeftOut(line, "which has to clear it")


def _own_method(name: str, subject: Subject) -> SourceLine | None:
    """Return the first line of a method of the subject's class, where it is Python code."""
    method = getattr(subject.factory, name, None)
    code = (
        getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
    )
    if code is None or not is_subject_line(code.co_filename):
        return None
    # Decorators come first.
    first = SourceLine(shown_path(code.co_filename), code.co_firstlineno, name)
    for number in range(first.number, first.number + _MAX_DECORATORS):
        later = first._replace(number=number)
        if code_of_line(later).startswith(("def ", "async def ")):
            return later
    return first
