"""The engine's part of a trace: which node or hook was running at each record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syncverify.trace.engine_log import EngineLog, EnginePass, EngineStep
from syncverify.trace.records import Moment


@dataclass(frozen=True, slots=True)
class Owned:
    """The step of the engine that a record of the trace belongs to.

    Attributes:
        of_pass: Pass of the step.
        step: The innermost step that was running: a hook, or a node outside of its hooks.
    """

    of_pass: EnginePass
    step: EngineStep


def owners(log: EngineLog, num_records: int) -> list[Owned | None]:
    """Return the owner of each record of a trace; None where the engine did not run."""
    found: list[Owned | None] = [None] * num_records
    for each in log.passes:  # a pass within another one comes later
        for step in each.steps:
            found[step.start : step.end] = [Owned(each, step)] * (step.end - step.start)
    return found


def passes_of(log: EngineLog, step: int, micro_batch: int) -> list[EnginePass]:
    """List the passes of a micro-batch, in the order in which they began."""
    wanted = Moment("backward", step, micro_batch)
    return [each for each in log.passes if each.moment == wanted]


def steps_in_order(passes: Sequence[EnginePass]) -> list[EngineStep]:
    """List the nodes and hooks of passes in the order in which they began."""
    steps = [step for each in passes for step in each.steps]
    return sorted(steps, key=lambda step: step.order)
