"""The result of playing a scenario: observations, traces, and the end of the run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import torch

from syncverify.trace.engine_log import EnginePass
from syncverify.trace.records import TraceRecord
from syncverify.trace.source_lines import CodeLine, Origin, SourceLine

ObservationPoint = Literal["accumulated", "reduced", "zeroed", "unbound"]
FaultKind = Literal[
    "raised", "deadlock", "collective_mismatch", "never_returns", "step_bound",
    "process_died",
]  # fmt: skip
# Such a run took a process, or holds it for good, so it is played rarely or never again.
ENDED_FROM_OUTSIDE: Final = frozenset({"never_returns", "process_died"})
# Differences in form between a gradient and the one that plain torch would leave.
FormCause = Literal[
    "wrong_type", "wrong_mesh", "wrong_placements", "wrong_strides", "keeps_graph",
    "inference_tensor",
]  # fmt: skip
# A difference and a sentence about it.
Misfit = tuple[FormCause, str]
Trace = Sequence[TraceRecord]  # of one rank
# The traces of all ranks.
Traces = Sequence[Trace]
# A line of a report: words, or a line of the subject.
Detail = str | CodeLine


@dataclass(frozen=True, slots=True)
class Observation:
    """Local gradients of one rank at one point of the training run.

    The points: after a micro-batch's backward (`accumulated`), after `wait()` (`reduced`), after
    `zero_grad()` (`zeroed`), or after a plain backward that follows `unbind()` (`unbound`).
    """

    point: ObservationPoint
    step: int
    micro_batch: int | None  # None unless `accumulated`
    # Copies; None where there is no gradient.
    gradients: Mapping[str, torch.Tensor | None]
    # Names of parameters with a gradient that is marked as one rank's term of a sum: DTensor sums
    # it over the ranks when it is used.
    partial: frozenset[str] = frozenset()
    # Differences in form from the gradient that plain torch would leave, by parameter.
    misfits: Mapping[str, tuple[Misfit, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Remains of the subject on one rank's parameters after `unbind()`; parameters by name."""

    hooks: Mapping[str, int]  # number of hooks left on a parameter
    # Parameters whose gradients still share a storage.
    shared_gradients: tuple[str, ...]
    changed: tuple[str, ...]  # parameters with a changed value or `requires_grad`
    # Parameters without the training program's own hook.
    lost_hooks: tuple[str, ...] = ()
    # Attributes with tensors that a parameter did not have.
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shared_parameters: tuple[str, ...] = ()  # those that came to share a storage
    settings: tuple[str, ...] = ()  # of the process, with another value, in words
    thread_settings: tuple[str, ...] = ()  # those of the rank's thread
    reseeded: tuple[str, ...] = ()  # random generators that were seeded, in words
    # Random generators that gave a number twice, in words.
    repeating: tuple[str, ...] = ()
    # First lines of functions that a plain backward called.
    called: tuple[SourceLine, ...] = ()


Misused = Literal["", "list", "unset gradient"]


@dataclass(frozen=True, slots=True)
class Fault:
    """The reason that a run did not reach its end."""

    kind: FaultKind
    ranks: tuple[int, ...]  # global ranks at fault, as far as the backend can tell
    summary: str  # one sentence
    details: tuple[Detail, ...] = ()  # position of each rank in words, stacks
    # Lines of the subject that words of the details name.
    named: tuple[Origin, ...] = ()
    identity: str = ""  # tells faults of one kind apart, such as the exception's type
    is_clear: bool = True  # whether an exception explains the mistake in words
    step: int = 0
    phase: str = ""  # call of the rank program that raised; "" for any other fault
    # The exception in words, without its rank: equal errors of two ranks or two subjects are
    # equal texts.
    error: str = ""
    # Whether a hook raised that still runs after `unbind()`.
    is_of_hook_left: bool = False
    # The value that Python refused to use: a list, or a `.grad` that is None in a tensor hook.
    misused: Misused = ""
    # Two sizes, in elements, that torch refused to use together.
    sizes: tuple[int, ...] = ()


class Held(NamedTuple):
    """The tensors, handles and groups that a subject holds after a step."""

    objects: int  # tensors and handles of collectives
    tensor_bytes: int
    groups: int  # process groups of the rank, the training program's own among them


@dataclass(slots=True)
class RankRun:
    """One rank's part of a run, filled while the rank program plays."""

    observations: list[Observation] = field(default_factory=list)
    trace: list[TraceRecord] = field(default_factory=list)  # in host order
    leftovers: Leftovers | None = None  # None if the run ended before `unbind()`
    # Names of the parameters with gradients that this rank owns, by the subject's method
    # `owner()`; None if there is none.
    owned: frozenset[str] | None = None
    # After each step, of programs with many.
    held: list[Held] = field(default_factory=list)
    # Local part of each parameter as gradients are read for the first time, by name, where
    # replicas are unequal at `bind()`; None where they are equal.
    bound: Mapping[str, torch.Tensor] | None = None
    engine: list[EnginePass] = field(default_factory=list)  # empty if nothing watched

    def at(
        self, point: ObservationPoint, step: int, micro_batch: int | None = None
    ) -> Observation | None:
        """Return an observation, or None if the run ended before it."""
        wanted = (point, step, micro_batch)
        places = ((e, (e.point, e.step, e.micro_batch)) for e in self.observations)
        return next((each for each, place in places if place == wanted), None)


@dataclass(frozen=True, slots=True)
class Run:
    """The result of all ranks."""

    backend: str
    # One entry per global rank; empty where a rank did not play.
    ranks: tuple[RankRun, ...]
    fault: Fault | None = None
    # False where collectives move no data (`fake`): values say nothing about the subject.
    carries_data: bool = True
    remarks: tuple[str, ...] = ()  # sentences for the reader of a report
    # Frozen, as a constant is.
    device: torch.device = torch.device("cpu")  # noqa: RUF009
    # Whether a host heard for two minutes of its clock that a collective was not complete, so
    # that a clear error is as good as the value.
    was_very_long: bool = False
