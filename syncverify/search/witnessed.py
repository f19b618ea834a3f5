"""Show the harm of a race: in its smallest scenario, or in a larger one that shows it.

Note [The smallest scenario with a witness]
    A scenario is shrunk as long as the violation stays. For a race that may be too small: on
    one rank a collective returns what it took in, so no order of it shows. Then scenarios
    that are a little larger are played, the smallest first, and the first one counts that shows
    the same violation with a wrong gradient.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from syncverify.backends.sim import SimBackend
from syncverify.errors import ScenarioFormatError
from syncverify.program.modules.named import require_own_parameters
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import PLAIN
from syncverify.scenario.features import features_outside
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Judge
from syncverify.search.schedules import ScheduleChoice
from syncverify.subjects.subject import Subject
from syncverify.witness.search import find_witness
from syncverify.witness.witness import NoWitness, Witness

_MAX_PLAYED: Final = 4
_LONE: Final = (
    "on one rank a collective returns what it took in, and no larger scenario that was "
    "played for it gave a witness"
)


def with_witness(
    entry: FoundViolation, subject: Subject, backend: SimBackend
) -> FoundViolation:
    """Return a violation with its witness, if need be in a larger scenario.

    See Note [The smallest scenario with a witness].
    """
    own = _witness(entry, subject, backend)
    if not isinstance(own.witness, NoWitness):
        return own
    judge = Judge(subject, backend, ScheduleChoice(), random_seed=0)
    larger = larger_scenarios(entry.scenario, subject.capabilities)
    for scenario in itertools.islice(larger, _MAX_PLAYED):
        judged = judge.judge_schedule(scenario, DEFAULT_SCHEDULE)
        same = judged.violations.get(entry.violation.identity)
        if same is None:
            continue
        alike = replace(same, related=entry.related, is_smallest=entry.is_smallest)
        shown = _witness(alike, subject, backend)
        # In a larger scenario another defect may be wrong in every order.
        if isinstance(shown.witness, Witness) and shown.witness.inverted is not None:
            return shown
    if entry.scenario.mesh.num_ranks > 1:
        return own
    reasons = (*own.witness.reasons, _LONE)
    return replace(own, witness=replace(own.witness, reasons=reasons))


def _witness(
    entry: FoundViolation, subject: Subject, backend: SimBackend
) -> FoundViolation:
    found = find_witness(
        entry.violation, entry.scenario, subject, backend, entry.schedule
    )
    return replace(entry, witness=found)


def larger_scenarios(
    scenario: Scenario, capabilities: Capabilities
) -> Iterator[Scenario]:
    """Yield scenarios within a contract that have a little more, the smallest first.

    The order: a second rank; then, on several ranks, more elements, a second parameter, more
    micro-batches, a second step; then two of these.
    """
    seen = {scenario}
    for count in (0, 1, 2):
        for chosen in itertools.combinations(_CHANGES, count):
            larger = scenario
            with contextlib.suppress(ScenarioFormatError):
                for change in (_second_rank, *chosen):
                    larger = replace(larger, **change(larger))
                if larger.module != PLAIN:
                    require_own_parameters(larger)
                if larger not in seen and not features_outside(larger, capabilities):
                    seen.add(larger)
                    yield larger


def _second_rank(scenario: Scenario) -> dict[str, Any]:
    mesh = scenario.mesh
    if mesh.num_ranks > 1:
        return {}
    return {"mesh": replace(mesh, shape=(2, *mesh.shape[1:]))}


def _more_elements(scenario: Scenario) -> dict[str, Any]:
    larger = tuple(
        replace(
            spec, global_shape=tuple(2 * size for size in spec.global_shape) or (2,)
        )
        for spec in scenario.parameters
    )
    return {"parameters": larger}


def _second_parameter(scenario: Scenario) -> dict[str, Any]:
    names = {spec.name for spec in scenario.parameters}
    name = next(f"p{n}" for n in itertools.count() if f"p{n}" not in names)
    copy = replace(scenario.parameters[-1], name=name)
    return {"parameters": (*scenario.parameters, copy)}


def _more_micro_batches(scenario: Scenario) -> dict[str, Any]:
    return {"accumulations": tuple(count + 1 for count in scenario.accumulations)}


def _second_step(scenario: Scenario) -> dict[str, Any]:
    counts, events = scenario.accumulations, scenario.events
    return {
        "accumulations": (*counts, counts[-1]),
        "events": (*events, PLAIN) if events else (),
    }


_CHANGES: Final = (
    _more_elements,
    _second_parameter,
    _more_micro_batches,
    _second_step,
)
