"""A scenario that tells apart the mistakes which a smaller one leaves open.

Note [Numbers that differ]
    With two ranks, two micro-batches and two parameters, half of the right gradient tells
    nothing about what divided it. Where several mistakes give the value in the smallest
    scenario, a few larger ones are played, in which the numbers of ranks, of micro-batches, of
    elements and of parameters differ. The first one with fewer readings is shown.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from syncverify.backends.sim import SimBackend
from syncverify.errors import ScenarioFormatError
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import PLAIN
from syncverify.scenario.features import features_outside
from syncverify.scenario.scenario import Scenario
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Judge
from syncverify.search.schedules import ScheduleChoice
from syncverify.subjects.subject import Subject

_MAX_PLAYED: Final = 12
_RANKS: Final = 3
_ELEMENTS: Final = 5


def with_fewer_readings(
    entry: FoundViolation, subject: Subject, backend: SimBackend, max_ranks: int
) -> FoundViolation:
    """Return a violation in a scenario that leaves the fewest readings of its value.

    See Note [Numbers that differ].
    """
    if not _num_readings(entry) or entry.not_shrunk:
        return entry
    judge, best = Judge(subject, backend, ScheduleChoice(), random_seed=0), entry
    larger = telling_scenarios(entry.scenario, subject.capabilities, max_ranks)
    for scenario in itertools.islice(larger, _MAX_PLAYED):
        judged = judge.judge_schedule(scenario, entry.schedule)
        same = judged.violations.get(entry.violation.identity)
        if same is not None and _num_readings(same) < _num_readings(best):
            best = replace(same, related=entry.related, is_smallest=entry.is_smallest)
        if not _num_readings(best):
            break
    return best


def _num_readings(entry: FoundViolation) -> int:
    return len(entry.violation.evidence.readings)


def telling_scenarios(
    scenario: Scenario, capabilities: Capabilities, max_ranks: int
) -> Iterator[Scenario]:
    """Yield scenarios within a contract whose numbers differ more, the smallest first.

    The order: another number of ranks, of elements, of micro-batches; then two of these, then all.
    """
    if scenario.module != PLAIN:
        return
    seen = {scenario}
    for count in (1, 2, 3):
        for chosen in itertools.combinations(_CHANGES, count):
            larger = scenario
            with contextlib.suppress(ScenarioFormatError):
                for change in chosen:
                    larger = replace(larger, **change(larger))
                is_known = larger in seen or larger.mesh.num_ranks > max_ranks
                if not is_known and not features_outside(larger, capabilities):
                    seen.add(larger)
                    yield larger


def _three_ranks(scenario: Scenario) -> dict[str, Any]:
    mesh = scenario.mesh
    shape = tuple(_RANKS if size == 2 else size for size in mesh.shape)
    return {"mesh": replace(mesh, shape=shape)}


def _five_elements(scenario: Scenario) -> dict[str, Any]:
    larger = tuple(
        replace(spec, global_shape=(_ELEMENTS, *spec.global_shape[1:]))
        for spec in scenario.parameters
    )
    return {"parameters": larger}


def _more_micro_batches(scenario: Scenario) -> dict[str, Any]:
    return {"accumulations": tuple(count + 1 for count in scenario.accumulations)}


_CHANGES: Final = (_three_ranks, _five_elements, _more_micro_batches)
