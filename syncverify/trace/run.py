"""The result of playing a scenario: observations, traces, and the end of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch

from syncverify.trace.engine_log import EngineLog
from syncverify.trace.records import TraceRecord
from syncverify.trace.source_lines import CodeLine, Origin, SourceLine

ObservationPoint = Literal["accumulated", "reduced", "zeroed", "unbound"]
FaultKind = Literal[
    "raised",
    "deadlock",
    "collective_mismatch",
    "never_returns",
    "step_bound",
    "process_died",
]
# Differences in form between a gradient and the one that plain torch would leave.
FormCause = Literal[
    "wrong_type",
    "wrong_mesh",
    "wrong_placements",
    "wrong_strides",
    "keeps_graph",
    "inference_tensor",
]
# A difference and a sentence about it.
Misfit = tuple[FormCause, str]
# The traces of all ranks.
Traces = Sequence[Sequence[TraceRecord]]
# A line of a report: words, or a line of the subject.
Detail = str | CodeLine


@dataclass(frozen=True, slots=True)
class Observation:
    """Local gradients of one rank at one point of the training run.

    Attributes:
        point: After a micro-batch's backward (`accumulated`), after `wait()`
            (`reduced`), after `zero_grad()` (`zeroed`), or after a plain backward that
            follows `unbind()` (`unbound`).
        step: Optimizer step, from 0.
        micro_batch: Micro-batch of the step, from 0; None unless `accumulated`.
        gradients: Copy of each parameter's local gradient, by name; None where a parameter
            has no gradient.
        partial: Names of parameters with a gradient that is marked as one rank's term of a
            sum: DTensor sums it over the ranks when it is used.
        misfits: Differences in form between a gradient and the one that plain torch would
            leave, by name of the parameter.
    """

    point: ObservationPoint
    step: int
    micro_batch: int | None
    gradients: Mapping[str, torch.Tensor | None]
    partial: frozenset[str] = frozenset()
    misfits: Mapping[str, tuple[Misfit, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Remains of the subject on one rank's parameters after `unbind()`.

    Attributes:
        hooks: Number of hooks left, by name of the parameter.
        lost_hooks: Names of parameters of which the training program's own hook is gone.
        attributes: Attributes with tensors that a parameter did not have, by its name.
        shared_gradients: Names of parameters with gradients that still share a storage.
        shared_parameters: Names of parameters that came to share a storage.
        changed: Names of parameters with a changed value or `requires_grad`.
        settings: Settings of the process that have another value, in words.
        thread_settings: Settings of the rank's thread that have another value, in words.
        reseeded: Random generators that were seeded, in words.
        repeating: Random generators that gave the program a number twice, in words.
        called: First lines of the subject's functions that a plain backward called.
    """

    hooks: Mapping[str, int]
    shared_gradients: tuple[str, ...]
    changed: tuple[str, ...]
    lost_hooks: tuple[str, ...] = ()
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shared_parameters: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    thread_settings: tuple[str, ...] = ()
    reseeded: tuple[str, ...] = ()
    repeating: tuple[str, ...] = ()
    called: tuple[SourceLine, ...] = ()


Misused = Literal["", "list", "unset gradient"]


@dataclass(frozen=True, slots=True)
class Fault:
    """The reason that a run did not reach its end.

    Attributes:
        kind: Kind of the fault.
        ranks: Global ranks at fault, as far as the backend can tell.
        summary: One sentence.
        details: More lines: position of each rank in words, stacks.
        named: Lines of the subject that words of the details name, in their order.
        identity: Word that tells faults of one kind apart, such as the exception's type.
        is_clear: Whether an exception explains the mistake in words.
        step: Optimizer step of the fault, from 0.
        phase: Call of the rank program that raised; "" for any other fault.
        error: The exception in words, without its rank: equal errors of two ranks or two
            subjects are equal texts.
        is_of_hook_left: Whether a hook raised that still runs after `unbind()`.
        misused: The value that Python refused to use: a list, or a `.grad` that is None in a
            tensor hook; "" for any other.
        sizes: Two sizes, in elements, that torch refused to use together; none for any other.
    """

    kind: FaultKind
    ranks: tuple[int, ...]
    summary: str
    details: tuple[Detail, ...] = ()
    named: tuple[Origin, ...] = ()
    identity: str = ""
    is_clear: bool = True
    step: int = 0
    phase: str = ""
    error: str = ""
    is_of_hook_left: bool = False
    misused: Misused = ""
    sizes: tuple[int, ...] = ()


class Held(NamedTuple):
    """The tensors, handles and groups that a subject holds after a step.

    Attributes:
        objects: Number of tensors and handles of collectives.
        tensor_bytes: Bytes of the tensors' memory.
        groups: Process groups of the rank, the training program's own among them.
    """

    objects: int
    tensor_bytes: int
    groups: int


@dataclass(slots=True)
class RankRun:
    """One rank's part of a run, filled while the rank program plays.

    Attributes:
        observations: Observations so far, in order.
        trace: Records of the rank so far, in host order.
        leftovers: Remains of the subject after `unbind()`; None if the run ended before.
        owned: Names of the parameters with gradients that this rank owns, by the subject's
            method `owner()`; None if there is none.
        held: What the subject held after each step, of programs with many steps.
        bound: Local part of each parameter as gradients are read for the first time, by name,
            where replicas are unequal at `bind()`; None where they are equal.
        engine: Backward passes of the rank; empty where they were not watched.
    """

    observations: list[Observation] = field(default_factory=list)
    trace: list[TraceRecord] = field(default_factory=list)
    leftovers: Leftovers | None = None
    owned: frozenset[str] | None = None
    held: list[Held] = field(default_factory=list)
    bound: Mapping[str, torch.Tensor] | None = None
    engine: EngineLog = field(default_factory=EngineLog)

    def at(
        self, point: ObservationPoint, step: int, micro_batch: int | None = None
    ) -> Observation | None:
        """Return an observation, or None if the run ended before it."""
        wanted = (point, step, micro_batch)
        for each in self.observations:
            if (each.point, each.step, each.micro_batch) == wanted:
                return each
        return None


@dataclass(frozen=True, slots=True)
class Run:
    """The result of all ranks.

    Attributes:
        backend: Name of the backend.
        ranks: One entry per global rank, in order; empty where a rank did not play.
        fault: Reason that the run did not reach its end; None if it did.
        carries_data: False where collectives move no data (`fake`), so that values say
            nothing about the subject.
        representatives: Global ranks that played for all others of a large world (`fake`);
            None where all ranks played.
        remarks: Sentences about this run for the reader of a report.
        device: Device on which each rank computed, by its type.
        was_very_long: Whether a host heard for two minutes of its clock that a collective was
            not complete, so that a clear error is as good as the value.
    """

    backend: str
    ranks: tuple[RankRun, ...]
    fault: Fault | None = None
    carries_data: bool = True
    representatives: tuple[int, ...] | None = None
    remarks: tuple[str, ...] = ()
    device: torch.device = torch.device("cpu")  # noqa: RUF009  # frozen, as a constant is
    was_very_long: bool = False
