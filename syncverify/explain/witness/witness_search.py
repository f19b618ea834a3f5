"""Look for a witness: a legal order that leads to a wrong gradient.

A race says that a gradient may be wrong. To show a wrong one, the scenario is played again
on simulated ranks with the first use running last, and the gradients that the training
program reads are compared with the reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from syncverify.explain.witness.adversary import AdversarialRecorder, Lateness
from syncverify.judge.evidence import Elements, FrozenGradient, WrongGradient
from syncverify.judge.ordering.inversions import Inversion, inversions
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
from syncverify.playing.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import Schedule
from syncverify.search.found_violation import NoWitness, Witness
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.subjects.subject import Subject

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


def find_witness(
    violation: Violation,
    scenario: Scenario,
    subject: Subject,
    backend: SimBackend,
    schedule: Schedule,
) -> Witness | NoWitness | None:
    """Return the first order with a wrong gradient.

    Returns:
        The order, or how many were played without a wrong gradient; None for a violation that
        is not about order, or whose work the play does not show.
    """
    race = violation.evidence.unordered
    if race is None:
        return None
    game = _Game(scenario, subject, backend, schedule)
    played = game.as_queued()
    # The pair that the violation tells of is tried first, for its witness is read beside it.
    pairs = sorted(
        unordered_work(played, violation.cause),
        key=lambda pair: not is_same_work(pair, race),
    )
    if not pairs:
        return None
    wrong_before = {_key(finding) for finding in _wrong_gradients(played)}
    outcomes: list[_Outcome] = []
    traces = [rank_run.trace for rank_run in played.run.ranks]
    (semantics,) = {disorder.semantics for disorder in played.disorders}
    orders = (
        (pair, inversion)
        for pair in pairs
        for inversion in inversions(pair, traces, semantics)
    )
    for pair, inversion in islice(orders, _MAX_ORDERS):
        outcomes.append(game.inverted(played, inversion))
        for finding in outcomes[-1].wrong:
            if _key(finding) not in wrong_before:
                return _witness(finding, pair, is_of_violation=is_same_work(pair, race))
    for finding in _wrong_gradients(played):
        return _witness(finding, None, is_of_violation=False)
    num_played = sum(outcome.failure is None for outcome in outcomes)
    return NoWitness(num_played, tuple(_reasons(pairs, outcomes)))


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The outcome of one order.

    Attributes:
        wrong: Wrong gradients.
        failure: Reason that the order could not be played; None if it was.
    """

    wrong: Sequence[Violation] = ()
    failure: str | None = None


def _reasons(found: Sequence[Unordered], outcomes: Sequence[_Outcome]) -> Iterator[str]:
    failures = Counter(outcome.failure for outcome in outcomes if outcome.failure)
    for failure, count in failures.items():
        yield f"{count} more could not be played to the end: {failure}"
    if all(isinstance(one, EarlyFree) and not one.use.reads for one in found):
        yield (
            "the late use of the memory only writes to it: the harm is done to the next "
            "owner of the memory"
        )


@dataclass(frozen=True, slots=True)
class _Game:
    """The plays of one scenario in other orders.

    Attributes:
        schedule: Schedule of the first play.
    """

    scenario: Scenario
    subject: Subject
    backend: SimBackend
    schedule: Schedule

    def as_queued(self) -> Judgement:
        """Play the order in which the host queues, with all accesses recorded."""
        ranks = range(self.scenario.mesh.num_ranks)
        return self._played([RankRecorder(keeps_everything=True) for _ in ranks])

    def inverted(self, played: Judgement, inversion: Inversion) -> _Outcome:
        """Play another order, and find the gradients that are wrong in it."""
        rank = inversion.rank
        lateness = Lateness.of(inversion, played.run.ranks[rank].trace)
        adversary = AdversarialRecorder(lateness)
        recorders = [RankRecorder() for _ in range(self.scenario.mesh.num_ranks)]
        recorders[rank] = adversary
        judgement = self._played(recorders)
        if adversary.gave_up:
            return _Outcome(failure="an operator that is late communicates")
        if judgement.run.fault is not None:
            return _Outcome(failure=_END_OF_RUN.get(judgement.run.fault.kind, _RAISED))
        corrected = [*judgement.run.ranks]
        corrected[rank] = adversary.corrected(corrected[rank])
        run = replace(judgement.run, ranks=tuple(corrected))
        return _Outcome([*_wrong_gradients(replace(judgement, run=run))])

    def _played(self, recorders: list[RankRecorder]) -> Judgement:
        scenario, subject = self.scenario, self.subject
        run = self.backend.run(scenario, subject, self.schedule, recorders)
        return Judgement(
            scenario, run, reference(scenario, subject.capabilities, run.device)
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
    expected, observed = _elements(finding)
    return Witness(
        pair, is_of_violation, finding.summary, expected, observed, finding.identity
    )


def _elements(finding: Violation) -> tuple[Elements, Elements]:
    """Return the elements of the right gradient, where they are known, and of the wrong one."""
    match finding.evidence:
        case WrongGradient(expected=expected, observed=observed):
            return expected, observed
        case FrozenGradient(observed=observed):
            return None, observed
    return None, None
