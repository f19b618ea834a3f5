"""Look for a fix: change the subject's source, and play the scenario with each change.

Note [A fix was played]
    A change counts if the scenario then holds every property, and if other scenarios hold the
    property that it mends and those that depend on it, show no violation that they do not show
    without it, and cost no more (Note [A fix costs no more]). Among the others are several
    ranks, buckets, steps and micro-batches. So a fix is right as far as it was played; it need
    not be the fix that the author would make. A change that leaves all costs as they were ends
    the search; of others, the one counts that launches the most before
    backward ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from syncverify.backends.sim import SimBackend
from syncverify.repair.game import SLOW, Game
from syncverify.repair.missing_calls import missing_calls
from syncverify.repair.missing_orders import candidates
from syncverify.repair.mutations import Names, mutations
from syncverify.repair.source_edit import Edit
from syncverify.repair.unasked_state import unasked_state
from syncverify.search.found_violation import FoundViolation
from syncverify.subjects.subject import Subject
from syncverify.witness.fix import Fix

_MAX_PLAYED: Final = 200  # changes to play for one violation
_MAX_AFTER_FIRST: Final = 40  # changes to play in the hope of one that changes no cost
_NUM_NEAR: Final = 2  # functions of the violation, which come before forgotten lines
_MAX_SLOW_RUNS: Final = 1  # a change may make a program hang


def find_fix(
    found: FoundViolation, subject: Subject, backend: SimBackend
) -> Fix | None:
    """Return a change of the subject's source that mends a violation; None if none is known."""
    if found.violation.cause in SLOW:
        return None
    game = Game(found, subject, backend)
    if not game.shows_violation():
        return None
    accepted: list[tuple[float, Fix]] = []
    num_left = _MAX_PLAYED
    for edit in _candidates(game):
        if num_left <= 0 or game.num_slow_runs > _MAX_SLOW_RUNS:
            break
        num_left -= 1
        if not (game.mends(edit) and game.is_harmless(edit)):
            continue
        verdict = game.cost_of(edit)
        if verdict.regression is not None or not game.is_confirmed(edit):
            continue
        if verdict.is_unchanged:
            return game.fix(edit)
        accepted.append((verdict.early_bytes, game.fix(edit)))
        num_left = min(num_left, _MAX_AFTER_FIRST)
    return max(accepted, key=lambda each: each[0])[1] if accepted else None


def _candidates(game: Game) -> Iterator[Edit]:
    if game.found.violation.unordered is not None:
        for disorder in game.disorders():
            yield from candidates(disorder, game.first_line_of, game.look)
    # A change of what a subject is given, such as a cap, only avoids a mistake.
    functions = [*game.functions()]
    names = Names.of(source.tree for source, _ in functions)
    for source, function in functions:
        yield from unasked_state(source, function)
    for source, function in functions[:_NUM_NEAR]:
        yield from mutations(source, function, names)
    for source in {source.path: source for source, _ in functions}.values():
        yield from missing_calls(source)
    for source, function in functions[_NUM_NEAR:]:
        yield from mutations(source, function, names)
