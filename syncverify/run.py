"""What came out of playing a scenario: observations, traces, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch

from syncverify.trace import Event

ObservationPoint = Literal["accumulated", "reduced", "zeroed", "unbound"]
FaultKind = Literal[
    "raised",
    "deadlock",
    "collective_mismatch",
    "never_returns",
    "step_bound",
    "process_died",
]


@dataclass(frozen=True, slots=True)
class Observation:
    """Local gradients of one rank at one point of the training run.

    Attributes:
        point: After a micro-batch's backward (`accumulated`), after `wait()`
            (`reduced`), after `zero_grad()` (`zeroed`), or after a plain backward that
            follows `unbind()` (`unbound`).
        step: Optimizer step, from 0.
        micro_batch: Micro-batch of the step; None unless `accumulated`.
        gradients: Copy of each parameter's local gradient, or None where it has none.
    """

    point: ObservationPoint
    step: int
    micro_batch: int | None
    gradients: Mapping[str, torch.Tensor | None]


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What one rank's parameters looked like after `unbind()`.

    Attributes:
        hooks: Hooks left, by the name of the parameter that has them.
        shared_gradients: Parameters whose gradients still share one storage.
        changed: Parameters whose value or `requires_grad` is not what it was.
    """

    hooks: Mapping[str, int]
    shared_gradients: tuple[str, ...]
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a run did not reach its end.

    Attributes:
        kind: What happened.
        ranks: The ranks at fault, as far as one can tell.
        summary: One sentence.
        details: More lines: per-rank positions, stacks.
        identity: Tells faults of one kind apart, such as the exception's type.
        is_clear: Whether an exception says in words what is wrong.
        step: In which step it was raised.
    """

    kind: FaultKind
    ranks: tuple[int, ...]
    summary: str
    details: tuple[str, ...] = ()
    identity: str = ""
    is_clear: bool = True
    step: int = 0


@dataclass(slots=True)
class RankRun:
    """One rank's part of a run, filled while the rank program plays."""

    observations: list[Observation] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    leftovers: Leftovers | None = None

    def at(
        self, point: ObservationPoint, step: int, micro_batch: int | None = None
    ) -> Observation | None:
        """Find an observation, if the run got there."""
        for observation in self.observations:
            if (observation.point, observation.step, observation.micro_batch) == (
                point,
                step,
                micro_batch,
            ):
                return observation
        return None


@dataclass(frozen=True, slots=True)
class Run:
    """What came out of all ranks.

    Attributes:
        backend: Name of the backend that played it.
        ranks: One entry per global rank, in order; empty where a rank did not play.
        fault: Why it did not reach its end; None if it did.
        carries_data: False where collectives move nothing (`fake`), so that values say
            nothing about the subject.
        lost_backend: Whether the backend cannot play anything after this run.
        representatives: The ranks that played for all others of a large world (`fake`);
            None where all ranks played.
    """

    backend: str
    ranks: tuple[RankRun, ...]
    fault: Fault | None = None
    carries_data: bool = True
    lost_backend: bool = False
    representatives: tuple[int, ...] | None = None
