"""Two violations of which one comes where the other one goes: one mistake, or two.

Note [Complements]
~~~~~~~~~~~~~~~~~~
A bucket that waits for a wrong number of micro-batches is reduced early in long windows, and
never in short ones. Such violations have no event in common, and no scenario shows both. So
the scenario of one violation is played again with windows of other lengths. Where the violation then
goes, and the other one comes for the same parameter, the two are forms of one mistake. Of two
mistakes each would stay, or both would go.

If the rest of a bucket is lost, its parameters lack the contributions of some ranks, or of
all: a parameter alone tells. That is tried for these two alone, since a parameter alone lies in
another bucket, which may have another mistake.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from syncverify.judge.properties.values import gradient_equals_reference
from syncverify.scenario.feature_table import PLAIN
from syncverify.scenario.features import features_outside
from syncverify.scenario.scenario import Scenario
from syncverify.search.budget import OutOfBudgetError
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Identity, Judge
from syncverify.search.occurrences import Occurrences

_LOSSES = {
    (gradient_equals_reference.__name__, "not_reduced"),
    (gradient_equals_reference.__name__, "rank_contribution_missing"),
}
_MOST_MICRO_BATCHES_MORE = 4
# With more violations, the subject is far from right, and each one takes some runs.
_MOST_VIOLATIONS = 3


def join_complements(judge: Judge, met: Occurrences) -> None:
    """Note the violations that are forms of another one, as further runs show."""
    counting = met.counting()
    if len(counting) > _MOST_VIOLATIONS or judge.budget.num_hangs:
        return
    judge.budget.num_slow_runs = 0
    with contextlib.suppress(OutOfBudgetError):
        for one in reversed(counting):
            others = [each for each in counting if each not in {one, *met.joined}]
            other = _complement(judge, met.own[one], others) if others else None
            if other is not None:
                first, second = sorted((one, other), key=counting.index)
                met.joined[second] = first


def _complement(
    judge: Judge, found: FoundViolation, others: list[Identity]
) -> Identity | None:
    """Return the violation that comes where a violation goes."""
    before = judge.judge_schedule(found.scenario, found.schedule).violations
    coming = [one for one in others if not _is_beside(found, before.get(one))]
    for scenario, candidates in _trials(judge, found, coming):
        violations = judge.judge_schedule(scenario, found.schedule).violations
        if found.violation.identity not in violations:
            for other in (one for one in candidates if one in violations):
                if _parameters(found) & _parameters(violations[other]):
                    return other
    return None


def _is_beside(found: FoundViolation, other: FoundViolation | None) -> bool:
    """Tell whether the scenario shows a violation of another property already."""
    # Of one property, the steps of a scenario may show both forms of a mistake.
    if other is None or other.violation.property == found.violation.property:
        return False
    return bool(_parameters(found) & _parameters(other))


def _trials(
    judge: Judge, found: FoundViolation, others: list[Identity]
) -> Iterator[tuple[Scenario, list[Identity]]]:
    """Yield scenarios of the contract, each with the violations that may come there."""
    losses = [one for one in others if {one, found.violation.identity} <= _LOSSES]
    trials = (
        *((scenario, others) for scenario in _other_lengths(found.scenario)),
        *((scenario, losses) for scenario in (_alone(found) if losses else ())),
    )
    for scenario, candidates in trials:
        if not features_outside(scenario, judge.subject.capabilities):
            yield scenario, candidates


def _parameters(found: FoundViolation) -> set[str]:
    return {name for each in found.violation.parameters for name in each.split(", ")}


def _alone(found: FoundViolation) -> Iterator[Scenario]:
    """Yield the scenario with one parameter of the violation alone."""
    whole = found.scenario
    for spec in whole.parameters if whole.module == PLAIN else ():
        if len(whole.parameters) > 1 and spec.name in _parameters(found):
            yield replace(whole, parameters=(spec,))


def _other_lengths(scenario: Scenario) -> Iterator[Scenario]:
    """Yield the scenario with another window in one step, and with all longer."""
    lengths = scenario.accumulations
    for step in range(len(lengths)):
        for length in range(1, lengths[step] + _MOST_MICRO_BATCHES_MORE + 1):
            if length != lengths[step]:
                others = (*lengths[:step], length, *lengths[step + 1 :])
                yield replace(scenario, accumulations=others)
    for more in range(1, _MOST_MICRO_BATCHES_MORE + 1):
        yield replace(scenario, accumulations=tuple(each + more for each in lengths))
