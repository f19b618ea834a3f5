"""Buckets that are reduced early in some windows and never in others: one count, or two.

Note [Early and never]
~~~~~~~~~~~~~~~~~~~~~~
A bucket that waits for a wrong number of micro-batches is reduced early in long windows, and
never in short ones. The two have no event in common, and no scenario shows both. So the
window in which a bucket is never reduced is played again with more micro-batches. A bucket
that is then reduced early waits for a number, which explains both; a bucket that was
forgotten stays where it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from syncverify.judge.properties.values import (
    accumulation_is_local_until_reduced,
    gradient_equals_reference,
)
from syncverify.scenario.scenario import Scenario
from syncverify.search.budget import OutOfBudgetError
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Identity, Judge
from syncverify.search.occurrences import Occurrences

EARLY: Identity = (accumulation_is_local_until_reduced.__name__, "reduced_early")
NEVER: Identity = (gradient_equals_reference.__name__, "not_reduced")
_MOST_MICRO_BATCHES_MORE = 4


def join_early_and_never(judge: Judge, met: Occurrences) -> None:
    """Note that one count explains early and missing reductions, if runs show that it does."""
    if {EARLY, NEVER}.issubset(met.counting()):
        judge.budget.num_slow_runs = 0
        with contextlib.suppress(OutOfBudgetError):
            if _is_early_in_a_longer_window(judge, met.own[NEVER]):
                met.joined[NEVER] = EARLY


def _is_early_in_a_longer_window(judge: Judge, never: FoundViolation) -> bool:
    wanted = _parameters(never)
    varies = judge.subject.capabilities.varying_accumulations
    step = never.violation.evidence["step"] if varies else None
    for scenario in _longer(never.scenario, step):
        found = judge.judge_schedule(scenario, never.schedule).violations.get(EARLY)
        if found is not None:
            return not wanted.isdisjoint(_parameters(found))
    return False


def _parameters(found: FoundViolation) -> set[str]:
    return set(", ".join(found.violation.parameters).split(", "))


def _longer(scenario: Scenario, step: int | None) -> Iterator[Scenario]:
    """Yield the scenario with one to four micro-batches more in a step; None means in all."""
    for more in range(1, 1 + _MOST_MICRO_BATCHES_MORE):
        lengths = (
            length + more if step in {None, index} else length
            for index, length in enumerate(scenario.accumulations)
        )
        yield replace(scenario, accumulations=tuple(lengths))
