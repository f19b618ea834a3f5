"""Look for a witness: a legal order that leads to a wrong gradient.

The scenario is played again with the first use of a race running last, and the gradients that
the training program reads are compared with the reference.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from syncverify.explain.case import Case
from syncverify.explain.witness.adversary import AdversarialRecorder, adversaries
from syncverify.judge.evidence import Elements, FrozenGradient, WrongGradient
from syncverify.judge.ordering.races import EarlyFree, Unordered, is_same_work
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.properties.ordering import unordered_work
from syncverify.judge.properties.values import (
    gradient_equals_reference,
    gradient_is_within_rounding,
    unreduced_stay_local,
)
from syncverify.judge.reference import reference
from syncverify.judge.violation import Violation
from syncverify.search.found_violation import NoWitness, Witness
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.trace.run import Fault

# Judges of the gradients that the training program reads.
OF_GRADIENTS: Final = (
    gradient_equals_reference,
    unreduced_stay_local,
    gradient_is_within_rounding,
)
# Each order costs a run. After this many harmless ones, another one rarely shows harm.
_MAX_ORDERS = 16
# A simulated host may block on late work, or branch on a value that is not there yet.
_BLOCKED = "the simulated host blocks before the late work could run"
_RAISED = "the subject raises when it reads a value that is not there yet"
_END_OF_RUN = dict.fromkeys(("deadlock", "step_bound", "never_returns"), _BLOCKED)


def find_witness(case: Case) -> Witness | NoWitness | None:
    """Return the first order with a wrong gradient, or how many orders were played without one.

    None is for a violation that is not about order, or whose work the play does not show.
    """
    violation, scenario = case.found.violation, case.found.scenario
    race = violation.evidence.unordered
    if race is None:
        return None

    def play(recorders: list[RankRecorder]) -> Judgement:
        run = case.play(recorders)
        right = reference(scenario, case.subject.capabilities, run.device)
        return Judgement(scenario, run, right)

    queued = play(case.recorders(keeps_everything=True))
    # The pair that the violation tells of is tried first, for its witness is read beside it.
    pairs = sorted(
        unordered_work(queued, violation.cause),
        key=lambda pair: not is_same_work(pair, race),
    )
    if not pairs:
        return None
    wrong_before = {_key(finding) for finding in _wrong_gradients(queued)}
    traces = [rank_run.trace for rank_run in queued.run.ranks]
    (semantics,) = {disorder.semantics for disorder in queued.disorders}
    orders = adversaries(pairs, traces, semantics)
    failures = list[str | None]()
    for pair, rank, adversary in islice(orders, _MAX_ORDERS):
        recorders = case.recorders()
        recorders[rank] = adversary
        played = play(recorders)
        failures.append(_failure(adversary, played.run.fault))
        if failures[-1] is None:
            # The gradients are those that the late reads of the adversary saw.
            ranks = [*played.run.ranks]
            ranks[rank] = adversary.corrected(ranks[rank])
            seen = replace(played, run=replace(played.run, ranks=tuple(ranks)))
            for finding in _wrong_gradients(seen):
                if _key(finding) not in wrong_before:
                    is_own = is_same_work(pair, race)
                    return _witness(finding, pair, is_of_violation=is_own)
    for finding in _wrong_gradients(queued):
        return _witness(finding, None, is_of_violation=False)
    return NoWitness(failures.count(None), tuple(_reasons(pairs, failures)))


def _failure(adversary: AdversarialRecorder, fault: Fault | None) -> str | None:
    """Return the reason that an order could not be played; None if it was."""
    if adversary.gave_up:
        return "an operator that is late communicates"
    return None if fault is None else _END_OF_RUN.get(fault.kind, _RAISED)


def _reasons(
    pairs: Sequence[Unordered], failures: Iterable[str | None]
) -> Iterator[str]:
    for failure, count in Counter(filter(None, failures)).items():
        yield f"{count} more could not be played to the end: {failure}"
    if all(isinstance(one, EarlyFree) and not one.use.reads for one in pairs):
        yield (
            "the late use of the memory only writes to it: the harm is done to the next "
            "owner of the memory"
        )


def _wrong_gradients(judgement: Judgement) -> Iterator[Violation]:
    for judge in OF_GRADIENTS:
        for finding in judge(judgement):
            yield replace(finding, property=judge.__name__)


def _key(finding: Violation) -> tuple[object, ...]:
    """Return rank, step, parameter and elements; as text, for nan does not equal itself."""
    observed = _elements(finding)[1]
    return finding.rank, finding.evidence.step, finding.parameter, str(observed)


def _witness(
    finding: Violation, pair: Unordered | None, *, is_of_violation: bool
) -> Witness:
    elements, identity = _elements(finding), finding.identity
    return Witness(pair, is_of_violation, finding.summary, *elements, identity)


def _elements(finding: Violation) -> tuple[Elements, Elements]:
    """Return the elements of the right gradient, where they are known, and of the wrong one."""
    match finding.evidence:
        case WrongGradient(expected=expected, observed=observed):
            return expected, observed
        case FrozenGradient(observed=observed):
            return None, observed
    return None, None
