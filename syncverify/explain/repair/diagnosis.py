"""All that is known of a violation beside its property: lines, values, a witness, a fix.

Note [One fix, one mistake]
    A wrong group is a sum over too few ranks in one scenario and over too many in the next, and
    a missing wait leaves two kinds of work without an order. No property shows that these are
    one mistake. A change of the source with which each of the scenarios is right shows it. If
    there are two mistakes, the fix of one leaves the other's scenario wrong.

Note [A fix was played]
    A change counts if the scenario then holds every property, and if three things are true of
    other scenarios:

    - they hold the property that the change mends, and those that depend on it;
    - they show no violation that they do not show without the change;
    - they cost no more (Note [A fix costs no more]).

    The others have several ranks, buckets, steps and micro-batches. So a fix is right as far as
    it was played; it need not be the fix that the author would make. A change that leaves all
    costs as they were ends the search. Without one, the change counts that launches the most
    before backward ends, and of equals the shortest.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from syncverify.explain.case import Case
from syncverify.explain.repair.game import Game
from syncverify.explain.repair.left_out import left_out
from syncverify.explain.repair.left_over import left_over
from syncverify.explain.repair.missing_lines import missing_calls, set_back
from syncverify.explain.repair.missing_orders import candidates
from syncverify.explain.repair.mutations import mutations
from syncverify.explain.repair.other_scenarios import with_fewer_readings, with_witness
from syncverify.explain.repair.ran_lines import acts_of, deciding_lines
from syncverify.explain.repair.rewrites import Names
from syncverify.explain.repair.source_edit import Edit, Function, Source
from syncverify.explain.repair.unasked_state import unasked_state
from syncverify.explain.witness.witness_search import find_witness
from syncverify.judge.evidence import Ended
from syncverify.judge.violation import is_exception
from syncverify.playing.choice import AnyBackend
from syncverify.playing.sim import SimBackend
from syncverify.processes.owner_link import Found, tell_owner
from syncverify.search.found_violation import Fix, FoundViolation, RelatedViolation
from syncverify.search.isolation import is_reported
from syncverify.subjects.subject import Subject
from syncverify.trace.run import ENDED_FROM_OUTSIDE

_MAX_PLAYED: Final = 200  # changes to play for one violation
_MAX_AFTER_FIRST: Final = 40  # changes to play in the hope of one that changes no cost
_NUM_NEAR: Final = 2  # functions of the violation, which come before forgotten lines
_MAX_SLOW_RUNS: Final = 1  # a change may make a program hang


def all_diagnosed(
    entries: Sequence[FoundViolation],
    subject: Subject,
    backend: AnyBackend,
    max_ranks: int,
) -> list[FoundViolation]:
    """Return the violations with all that is known of them, one for each mistake."""
    if not is_reported():
        return [*entries]
    if entries:
        tell_owner(Found)
    if not isinstance(backend, SimBackend):
        return [diagnosed(each, subject, backend) for each in entries]

    def diagnose(entry: FoundViolation) -> FoundViolation:
        # In a scenario that shows the harm of a race, or one mistake alone.
        if entry.violation.evidence.unordered is None:
            entry = with_fewer_readings(Case(entry, subject, backend), max_ranks)
        else:
            entry = with_witness(Case(entry, subject, backend))
        return diagnosed(entry, subject, backend)

    return diagnosed_by_fix(entries, diagnose, subject, backend)


def diagnosed_by_fix(
    entries: Iterable[FoundViolation],
    diagnose: Callable[[FoundViolation], FoundViolation],
    subject: Subject,
    backend: SimBackend,
) -> list[FoundViolation]:
    """Diagnose violations, and list each with another one whose fix mends it, in their order."""
    reported = list[FoundViolation]()
    for entry in entries:
        for place, known in enumerate(reported):
            if _is_mended(entry, known, subject, backend):
                reported[place] = _with(known, entry)
                break
        else:
            new = diagnose(entry)
            for each in [*reported]:
                if _is_mended(each, new, subject, backend):
                    reported.remove(each)
                    new = _with(new, each)
            reported.append(new)
    return reported


def _is_mended(
    entry: FoundViolation, other: FoundViolation, subject: Subject, backend: SimBackend
) -> bool:
    """Tell whether the fix of another violation leaves nothing wrong where one shows."""
    change = other.fix.change if other.fix else None
    if not isinstance(change, Edit) or entry.violation.cause in ENDED_FROM_OUTSIDE:
        return False
    return Game(entry, subject, backend).mends(change)


def _with(entry: FoundViolation, other: FoundViolation) -> FoundViolation:
    """Return a violation that lists another one, and all that this one lists."""
    violation, lines = other.violation, other.violation.evidence.named_lines
    form = RelatedViolation(
        *violation.identity, violation.summary, is_consequence=False, lines=lines
    )
    related = dict.fromkeys((*entry.related, form, *other.related))
    ordered = sorted(related, key=lambda each: not each.is_consequence)
    return replace(entry, related=tuple(ordered))


def diagnosed(
    entry: FoundViolation, subject: Subject, backend: AnyBackend
) -> FoundViolation:
    """Return the violation with its lines and a fix, and a witness if it is about order."""
    evidence = entry.violation.evidence
    if is_exception(entry.violation.cause) and isinstance(evidence, Ended):
        # The error may name the subject's argument for groups.
        evidence = replace(evidence, groups=subject.groups_argument)
        entry = replace(entry, violation=replace(entry.violation, evidence=evidence))
    if not isinstance(backend, SimBackend):  # no other one can play what is chosen
        return entry
    entry = replace(entry, left_over=left_over(Case(entry, subject, backend)))
    case = Case(entry, subject, backend)
    entry = replace(
        entry,
        witness=entry.witness or find_witness(case),
        acts=acts_of(case),
        left_out=left_out(case),
        fix=find_fix(case),
    )
    is_surely_left = all(each.is_grown for each in entry.left_over)
    if entry.fix is not None and not (entry.fix.sets_back or is_surely_left):
        # Another line mends the step: a flag that is left over may be meant to stay.
        entry = replace(entry, left_over=())
    if entry.fix or entry.left_out or entry.left_over:
        return entry
    return replace(entry, deciders=deciding_lines(case))


def find_fix(case: Case) -> Fix | None:
    """Return a change of the subject's source that mends a violation; None if none is known."""
    if case.found.violation.cause in ENDED_FROM_OUTSIDE:
        return None
    game = Game(case.found, case.subject, case.backend)
    if not game.shows_violation():
        return None
    search = _Search(game)
    if game.found.violation.evidence.unordered is not None:
        orders = (e for each in game.disorders() for e in candidates(each, game))
        if fix := search.among(orders):
            return fix
    # A flag or a step number may be meant to stay, and the code that reads the number be wrong.
    is_surely_left = all(each.is_grown for each in case.found.left_over)
    if is_surely_left and not search.accepted and (fix := _set_back(game)):
        return fix
    return search.among(_changes(game)) or search.best() or _set_back(game)


@dataclass(slots=True)
class _Search:
    """Plays changes, a bounded number of them."""

    game: Game
    num_left: int = _MAX_PLAYED  # changes that may be played from now on
    # Fixes that change some cost, each with its early bytes and minus its length.
    accepted: list[tuple[tuple[float, int], Fix]] = field(default_factory=list)

    def among(self, edits: Iterable[Edit]) -> Fix | None:
        """Return the first change that mends and leaves all costs; note those that mend."""
        game = self.game
        for edit in edits:
            if self.num_left <= 0 or game.num_slow_runs > _MAX_SLOW_RUNS:
                break
            self.num_left -= 1
            is_fix = not _silences(edit, game) and game.mends(edit)
            costs = game.costs_of(edit) if is_fix and game.is_harmless(edit) else None
            if costs is None or not game.is_confirmed(edit):
                continue
            if game.is_unchanged(costs):
                return game.fix(edit)
            early_bytes = sum(each.early_bytes for each in costs)
            rank = (early_bytes, -sum(map(len, edit.lines)))
            self.accepted.append((rank, game.fix(edit)))
            self.num_left = min(self.num_left, _MAX_AFTER_FIRST)
        return None

    def best(self) -> Fix | None:
        """Return the fix that launches the most before backward ends, the shortest of equals."""
        best = max(self.accepted, key=lambda each: each[0], default=None)
        return best[1] if best else None


def _silences(edit: Edit, game: Game) -> bool:
    """Tell whether a change only keeps a line from raising."""
    if not edit.num_lines or not is_exception(game.found.violation.cause):
        return False
    # Without the line there is no error, and no effect of the line either.
    is_removal = edit.lines in {(), ("pass",)}
    before, after = (
        [line.strip().replace("not ", "") for line in lines]
        for lines in (game.removed(edit), edit.lines)
    )
    return is_removal or before == after


def _set_back(game: Game) -> Fix | None:
    """Return a change that sets back what a step left over, if there is one that mends."""
    checks = game.mends, game.is_harmless, game.costs_no_more_where_right
    for source in _sources(game.functions()):
        for edit in set_back(source, game.found.left_over):
            if all(holds(edit) for holds in (*checks, game.is_confirmed)):
                return replace(game.fix(edit), sets_back=True)
    return None


def _sources(functions: Iterable[tuple[Source, Function]]) -> list[Source]:
    return [*{source.path: source for source, _ in functions}.values()]


def _changes(game: Game) -> Iterator[Edit]:
    # A change of what a subject is given, such as a cap, only avoids a mistake.
    functions = [*game.functions()]
    names = Names.of(source.tree for source, _ in functions)
    for source, function in functions:
        yield from unasked_state(source, function)
    for source, function in functions[:_NUM_NEAR]:
        yield from mutations(source, function, names)
    for source in _sources(functions):
        yield from missing_calls(source)
    for source, function in functions[_NUM_NEAR:]:
        yield from mutations(source, function, names)
