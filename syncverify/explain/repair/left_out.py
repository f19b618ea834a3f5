"""Places where a subject leaves something out: no line that ran is wrong, since one is missing.

Note [Places of what is missing]
    An omission has no line of its own. These places are shown instead:

    - of a missing launch, the statement that kept it from running; see
      Note [What keeps a line from running];
    - of something left behind, the method that had to clear it;
    - of the last part of something, the division that rounds the number of parts down; see
      Note [The rest of a division];
    - of a missing wait, the line that waits for other collectives of the same launch.

Note [The rest of a division]
    `len(buckets) // n` or `numel // n` leaves out the last part, unless n divides the number. A
    subject may round down for many reasons. So each division notes its numbers in a play, and it
    is shown only if its rest is as large as what was not reduced: in elements or in parameters.
"""

import ast
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from syncverify.explain.case import Case
from syncverify.explain.repair.game import Game
from syncverify.explain.repair.other_scenarios import with_one_parameter_more
from syncverify.explain.repair.ran_lines import RanLines, lines_of_step
from syncverify.explain.repair.scope import NOTE_DIVISION
from syncverify.explain.repair.skipped_launch import function_named, skipped_launches
from syncverify.explain.repair.source_edit import line_of, source_of
from syncverify.judge.evidence import TooFewElements, WrongGradient
from syncverify.judge.ordering.races import Race
from syncverify.judge.properties.judgement import launches_of_step
from syncverify.plain_text import counted
from syncverify.scenario.layout import local_shape
from syncverify.scenario.schedule import DEFAULT_SCHEDULE
from syncverify.search.found_violation import FoundViolation, LeftOut
from syncverify.trace import records
from syncverify.trace.source_lines import (
    CodeLine,
    Origin,
    SourceLine,
    code_of_line,
    with_code,
)

_NUM_SHOWN: Final = 2
_NOT_LAUNCHED: Final = frozenset({"not_reduced", "not_reset"})
# Causes of a gradient, or of a part of one, that other ranks' contributions are missing from.
_OF_A_REST: Final = {"not_reduced", "partly_wrong", "rank_contribution_missing"}
_MAX_DIVISIONS: Final = 8
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


def left_out(case: Case) -> tuple[LeftOut, ...]:
    """Return the places in the subject of what is missing; see Note [Places of what is missing]."""
    found, cause = case.found, case.found.violation.cause
    if cause == "read_before_reduced":
        return _partly_waited(case)
    if found.starts_wrongly:
        cause = "not_reset"
    if cause not in {*_NOT_LAUNCHED, *_METHODS, *_OF_A_REST}:
        return ()
    step = found.violation.evidence.step or 0
    rank = min(found.violation.ranks, default=0)
    ran = lines_of_step(case, rank=rank, step=step)
    if cause in _OF_A_REST and (rounding := next(_rounded_down(case, ran), None)):
        return (rounding,)
    if cause in _NOT_LAUNCHED:
        places = [*dict.fromkeys(skipped_launches(ran))]
        if len(places) > 1:
            places = [*dict.fromkeys(skipped_launches(ran, _kept_rightly(case)))]
        why = f"in step {step} it led to no collective"
        return tuple(_at(place, why) for place in places[:_NUM_SHOWN])
    if cause not in _METHODS:
        return ()
    name = _METHODS[cause]
    place = line_of(getattr(case.subject.factory, name, None))
    place = place or function_named(name, ran)
    return (_at(place, "which has to clear it"),) if place else ()


def _kept_rightly(case: Case) -> set[SourceLine] | None:
    """Return the statements that keep a collective from running where all is right, if known."""
    places = list[set[SourceLine]]()
    for scenario, run in case.right_scenarios():
        if any(each.reduces for each in launches_of_step(run.ranks[0].trace, 0)):
            right = replace(case.found, scenario=scenario, decisions=())
            ran = lines_of_step(replace(case, found=right), rank=0, step=0)
            places.append({*skipped_launches(ran)})
    return set().union(*places) if places else None


def _at(place: SourceLine, why: str, *, rounds_down: bool = False) -> LeftOut:
    return LeftOut(CodeLine(place, code_of_line(place)), why, rounds_down)


def _partly_waited(case: Case) -> tuple[LeftOut, ...]:
    """Return the lines that wait for others of the collectives that a race is about.

    A smallest scenario may launch one collective alone. So a scenario with one more parameter
    is played as well. There are no lines where all collectives of the launching line are waited
    for, or no one is.
    """
    own, race = case.found.scenario, case.found.violation.evidence.unordered
    if not (
        isinstance(race, Race) and isinstance(race.first, records.CollectiveLaunch)
    ):
        return ()
    more = with_one_parameter_more(own, case.subject.capabilities)
    for scenario in (own, *more):
        run = case.backend.run(scenario, case.subject, DEFAULT_SCHEDULE)
        where = f"in a scenario with {counted(len(scenario.parameters), 'parameter')}"
        trace = run.ranks[race.rank].trace
        if waits := tuple(_waits_for_some(trace, race.first.source, where)):
            return waits
    return ()


def _waits_for_some(
    trace: Sequence[records.TraceRecord], source: Origin, where: str
) -> Iterator[LeftOut]:
    """Yield each line that waits for collectives of a line, of which others have no wait."""
    launched = {
        record.key
        for record in trace
        if isinstance(record, records.CollectiveLaunch) and record.source == source
    }
    waited = defaultdict[Origin, set[records.CollectiveKey]](set)
    for record in trace:
        if isinstance(record, records.CollectiveWait) and record.key in launched:
            waited[record.source].add(record.key)
    if launched == set[records.CollectiveKey]().union(*waited.values()):
        return
    of_line = f"of the {len(launched)} collectives of {source}, {where}"
    for origin, keys in waited.items():
        for line in with_code([origin]):
            yield LeftOut(line, f"waits for {len(keys)} {of_line}")


def _rounded_down(case: Case, ran: RanLines) -> Iterator[LeftOut]:
    """Yield the divisions whose rest is what is not reduced; see Note [The rest of a division]."""
    game = Game(case.found, case.subject, case.backend)
    sizes = {*_sizes_left_out(case.found)}
    sources = filter(None, map(source_of, sorted(ran)))
    divisions = (
        (source, *each) for source in sources for each in _divisions(source.tree)
    )
    for source, node, whole, by in itertools.islice(divisions, _MAX_DIVISIONS):
        text = f"({NOTE_DIVISION}({ast.unparse(whole)}, {ast.unparse(by)}))"
        for edit in source.part(node, text):
            for number, divisor in sorted(game.look(edit).divisions):
                if (rest := number % divisor) in sizes:
                    why = f"it rounds {number} / {divisor} down, and leaves out {rest}"
                    yield _at(source.line(node.lineno), why, rounds_down=True)
                    break


def _divisions(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr, ast.expr]]:
    """Yield expressions that round a quotient down, each with its dividend and its divisor."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.BinOp(left=whole, op=ast.FloorDiv(), right=by)
                | ast.Call(
                    func=ast.Name(id="int" | "floor") | ast.Attribute(attr="floor"),
                    args=[ast.BinOp(left=whole, op=ast.Div(), right=by)],
                )
            ) if not isinstance(whole, ast.UnaryOp):
                if f"{ast.unparse(by)} - 1" not in ast.unparse(whole):  # rounded up
                    yield node, whole, by


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
