"""What a missing order comes to: one that is legal, and the gradient that it leads to.

A race says that something may go wrong. To see it go wrong, we play the scenario again on
simulated ranks, with the work that was queued first running last, and compare what the
training program reads with what it should read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from syncverify.backends.sim import SimBackend
from syncverify.oracle import reference
from syncverify.ordering.inversions import Inversion, inversions
from syncverify.ordering.races import EarlyFree, MemoryUse, Race
from syncverify.properties.judgement import Finding, Judgement
from syncverify.properties.ordering import in_words, unordered
from syncverify.properties.rounding import gradient_is_within_rounding
from syncverify.properties.values import (
    gradient_equals_reference,
    unreduced_stay_local,
)
from syncverify.report.witness import NoWitness, Witness
from syncverify.scenario import Scenario
from syncverify.schedule import Schedule
from syncverify.sim.adversary import AdversarialRecorder, Lateness
from syncverify.sim.rank_recorder import RankRecorder
from syncverify.subject import Subject
from syncverify.trace import CollectiveLaunch
from syncverify.violation import Violation

# Each costs a run; where so many orders do no harm, others hardly will.
_MAX_ORDERS = 16
# A host may block, or branch on what it reads, where a device would just be late.
_BLOCKED = "the simulated host blocks before the late work could run"
_RAISED = "the subject raises when it reads what is not there yet"
_END_OF_RUN = dict.fromkeys(("deadlock", "step_bound", "never_returns"), _BLOCKED)


def find_witness(
    violation: Violation,
    scenario: Scenario,
    subject: Subject,
    backend: SimBackend,
    schedule: Schedule,
) -> Witness | NoWitness | None:
    """Look for an order that shows what a violation of order comes to.

    Args:
        violation: Of any property.
        scenario: What shows it.
        subject: Whose it is.
        backend: Where to play.
        schedule: What timing decides.

    Returns:
        None where it is not about order.
    """
    game = _Game(scenario, subject, backend, schedule)
    told = (violation.evidence.get("first"), violation.evidence.get("second"))
    played = game.as_queued()
    found = sorted(
        unordered(played, violation.cause), key=lambda found: in_words(found) != told
    )
    if not found:
        return None
    before = {_key(finding) for finding in _wrong_values(played)}
    outcomes: list[_Outcome] = []
    for one, inversion in islice(_orders(played, found), _MAX_ORDERS):
        outcomes.append(game.inverted(played, inversion))
        for finding in outcomes[-1].wrong:
            if _key(finding) not in before:
                return _witness(_order(one, told), finding)
    for finding in _wrong_values(played):
        return _witness("everything runs in the order in which it was queued", finding)
    num_played = sum(outcome.failure is None for outcome in outcomes)
    return NoWitness(num_played, tuple(_reasons(found, outcomes)))


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What is wrong when an order is played, or why it could not be."""

    wrong: Sequence[Finding] = ()
    failure: str | None = None


def _reasons(
    found: Sequence[Race | EarlyFree], outcomes: Sequence[_Outcome]
) -> Iterator[str]:
    failures = Counter(outcome.failure for outcome in outcomes if outcome.failure)
    for failure, count in failures.items():
        yield f"{count} more could not be played to the end: {failure}"
    if all(isinstance(one, EarlyFree) and _only_writes(one.use) for one in found):
        yield (
            "what uses the memory too late only writes to it: the harm is done to whoever "
            "has it by then"
        )


def _only_writes(use: MemoryUse) -> bool:
    if isinstance(use, CollectiveLaunch):
        return not use.regions
    return not use.reads


@dataclass(frozen=True, slots=True)
class _Game:
    scenario: Scenario
    subject: Subject
    backend: SimBackend
    schedule: Schedule

    def as_queued(self) -> Judgement:
        """Play in the order in which the host queues."""
        ranks = range(self.scenario.mesh.num_ranks)
        return self._played([RankRecorder(keeps_everything=True) for _ in ranks])

    def inverted(self, played: Judgement, inversion: Inversion) -> _Outcome:
        """Play in another order, and tell what is wrong then."""
        rank = inversion.rank
        lateness = Lateness.of(inversion, played.run.ranks[rank].events)
        adversary = AdversarialRecorder(lateness)
        ranks = range(self.scenario.mesh.num_ranks)
        judgement = self._played(
            [adversary if r == rank else RankRecorder() for r in ranks]
        )
        if adversary.gave_up:
            return _Outcome(failure="an operator that is late communicates")
        if judgement.run.fault is not None:
            return _Outcome(failure=_END_OF_RUN.get(judgement.run.fault.kind, _RAISED))
        adversary.correct(judgement.run.ranks[rank])
        return _Outcome([*_wrong_values(judgement)])

    def _played(self, recorders: list[RankRecorder]) -> Judgement:
        run = self.backend.run_with(
            self.scenario, self.subject, self.schedule, recorders
        )
        owed = reference(self.scenario, self.subject.capabilities)
        return Judgement(self.scenario, run, owed)


def _orders(
    played: Judgement, found: list[Race | EarlyFree]
) -> Iterator[tuple[Race | EarlyFree, Inversion]]:
    traces = [rank_run.events for rank_run in played.run.ranks]
    for one in found:
        for inversion in inversions(one, traces, played.semantics):
            yield one, inversion


def _wrong_values(judgement: Judgement) -> Iterator[Finding]:
    yield from gradient_equals_reference(judgement)
    yield from unreduced_stay_local(judgement)
    yield from gradient_is_within_rounding(judgement)


def _key(finding: Finding) -> tuple[str, str]:
    return finding.summary, str((finding.evidence or {}).get("observed"))


def _witness(order: str, finding: Finding) -> Witness:
    evidence = finding.evidence or {}
    return Witness(
        order, finding.summary, evidence.get("expected"), evidence.get("observed")
    )


def _order(found: Race | EarlyFree, told: tuple[Any, Any]) -> str:
    """Say what runs before what; a violation calls what it tells of first and second."""
    first, second = in_words(found)
    late, early = ("first", "second") if (first, second) == told else (first, second)
    if isinstance(found, EarlyFree):
        return f"{early} is written on rank {found.rank} before {late} has used it"
    return f"{early} runs before {late} on rank {found.rank}"
