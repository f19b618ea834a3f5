"""Play a scenario again in another order that its streams allow.

The simulated host runs each operator when it queues it. To run an operator late, the
adversary

1. runs it at once, because the host needs tensors for the results;
2. takes back all that it wrote;
3. runs it again when the late work is due: its inputs then are those that a device would
   have read at that time.

A collective starts late as a whole, or only its results are late.

Late work is named by numbers that count operators and collectives. The same scenario and
schedule give the same numbers, with and without late work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves, tree_map_only
from typing_extensions import override

from syncverify.judge.ordering.happens_before import Semantics
from syncverify.judge.ordering.inversions import Inversion, inversions
from syncverify.judge.ordering.races import Unordered
from syncverify.sim.recording.operators import (
    AccessRecording,
    Effects,
    effects_of,
    tensors_at,
)
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.trace import records
from syncverify.trace.regions import has_memory, tensor_region
from syncverify.trace.run import Observation, RankRun, Traces
from syncverify.trace.source_lines import NoLine

_COUNTED = (records.Access, records.CollectiveLaunch, records.CollectiveWait)
# Stands for memory that no correct program reads.
_GARBAGE = math.nan


@dataclass(frozen=True, slots=True)
class Lateness:
    """An inversion, by numbers that are known while a trace is still being recorded."""

    operators: frozenset[int]  # that run late
    starts: frozenset[int]  # collectives that start late
    operator_results: frozenset[int]  # operators with late results
    results: frozenset[int]  # collectives with late results
    # Counts of operators, collectives and waits after which the late work runs.
    until: tuple[int, int, int]
    overwritten: int | None

    @staticmethod
    def of(inversion: Inversion, events: Sequence[records.TraceRecord]) -> Lateness:
        """Translate positions in a trace recorded with `keeps_everything` into numbers."""

        def numbers(
            kind: type[records.TraceRecord], indices: frozenset[int]
        ) -> frozenset[int]:
            places = enumerate(_positions(events, kind))
            return frozenset(number for number, index in places if index in indices)

        before = events[: inversion.until]
        return Lateness(
            operators=numbers(records.Access, inversion.late),
            starts=numbers(records.CollectiveLaunch, inversion.late),
            operator_results=numbers(records.Access, inversion.late_results),
            results=numbers(records.CollectiveLaunch, inversion.late_results),
            until=tuple(len(_positions(before, kind)) for kind in _COUNTED),  # type: ignore[arg-type]  # three kinds
            overwritten=inversion.overwritten,
        )


@dataclass(slots=True)
class _Late:
    """Work that is late, with the tensors that it reads and writes."""

    run: Callable[[], None]
    tensors: list[torch.Tensor] = field(default_factory=list)
    written: list[torch.Tensor] = field(default_factory=list)


class AdversarialRecorder(RankRecorder):
    """Records one rank, and runs some of its work late."""

    def __init__(self, lateness: Lateness) -> None:
        self._lateness = lateness
        self._late: list[_Late] = []
        self._num_operators = self._num_launches = 0
        self._late_starts: set[records.CollectiveKey] = set()
        self._is_over = False
        self.gave_up = False  # some of that work could not be put off
        # By step: gradients as a late read sees them.
        self.late_reads: dict[int, list[torch.Tensor]] = {}
        super().__init__(keeps_everything=True)

    @override
    def _recording_mode(self) -> AccessRecording:
        return _LateRecording(
            self._note_operator,
            on_arguments=self._note_arguments,
            num_events=lambda: len(self.trace),
            operate=self._operate,
        )

    @override
    def _note_operator(self, *noted: Any) -> None:
        before = len(self._raw)
        super()._note_operator(*noted)
        self._num_operators += len(self._raw) - before

    @override
    def _note_region(self, *noted: Any) -> None:
        super()._note_region(*noted)
        self._num_operators += 1

    def _operate(
        self,
        effects: Effects,
        operator: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run: Callable[[], Any],
    ) -> Any:
        """Run an operator; if it is late, take back its writes and keep it for later."""
        self._catch_up()
        number = self._num_operators
        touches = effects.writes or effects.fills  # an allocation alone touches nothing
        numbers = self._lateness.operators | self._lateness.operator_results
        if not (touches and self._is_late(number, numbers)):
            return run()
        args, kwargs = _apart((args, kwargs))
        written = tensors_at(effects.writes, args, kwargs)
        before = [tensor.clone() for tensor in written]
        num_launches, num_storages = self._num_launches, self.storages.num_seen
        result = run()
        if self._num_operators == number:
            return result  # it touches no device memory, so no stream can delay it
        if self._num_launches != num_launches:
            self.gave_up = True  # a collective inside of it would run twice
            return result
        results = _tensors(_apart(result))
        values = [tensor.clone() for tensor in (*written, *results)]
        _copy(before, written)
        self._spoil(results, lambda number: number >= num_storages)

        def run_again() -> None:
            _copy(_tensors(operator(*args, **kwargs)), results)

        if number in self._lateness.operator_results:
            late = _Late(partial(_copy, values, [*written, *results]))
        else:
            late = _Late(run_again, _tensors((args, kwargs)))
        self._late.append(replace(late, written=[*written, *results]))
        return result

    @override
    def read(
        self,
        operator: str,
        tensors: Iterable[torch.Tensor],
        reader: NoLine = NoLine.OPTIMIZER,
    ) -> None:
        self._catch_up()
        given, step, number = list(tensors), self.moment.step, self._num_operators
        super().read(operator, given, reader)
        self._num_operators += 1
        if self._is_late(number, self._lateness.operators):

            def read_again() -> None:
                self.late_reads[step] = [tensor.clone() for tensor in given]

            self._late.append(_Late(read_again, given))

    @override
    def launch(
        self, operation: str, tensors: list[torch.Tensor], **told: Any
    ) -> records.CollectiveLaunch:
        self._catch_up()
        launched = super().launch(operation, tensors, **told)
        if self._is_late(self._num_launches, self._lateness.starts):
            self._late_starts.add(launched.key)
            self._late.append(_Late(lambda: None, list(tensors)))
        return launched

    @override
    def start(
        self, launched: records.CollectiveLaunch, run: Callable[[], None]
    ) -> None:
        self._num_launches += 1
        if launched.key in self._late_starts:
            self._late.append(_Late(run))
        else:
            run()

    @override
    def end(self, launched: records.CollectiveLaunch, run: Callable[[], None]) -> None:
        self._catch_up()
        launches = [e for e in self.trace if isinstance(e, records.CollectiveLaunch)]
        number = launches.index(launched)
        is_late = self._is_late(number, self._lateness.results)
        if is_late or launched.key in self._late_starts:
            self._late.append(_Late(run))
        else:
            run()

    @override
    @contextmanager
    def calling(self, moment: records.Moment) -> Iterator[None]:
        self._catch_up()
        with super().calling(moment):
            yield
            self._catch_up()

    @override
    def finish(self) -> None:
        self._run_late_work()
        super().finish()

    def corrected(self, played: RankRun) -> RankRun:
        """Return a rank's run with each gradient as a late read saw it."""
        observations = list[Observation]()
        for each in played.observations:
            late = self.late_reads.get(each.step)
            if late is not None and each.point == "reduced":
                seen = each.gradients.items()
                names = [name for name, gradient in seen if gradient is not None]
                values = dict(zip(names, late, strict=True))
                each = replace(each, gradients={**each.gradients, **values})
            observations.append(each)
        return replace(played, observations=observations)

    def _is_late(self, number: int, late: frozenset[int]) -> bool:
        return number in late and not self._is_over

    def _catch_up(self) -> None:
        """Run the late work once all other work that comes before has run."""
        if self._is_over:
            return
        num_waits = len(_positions(self.trace, records.CollectiveWait))
        counts = (self._num_operators, self._num_launches, num_waits)
        due = zip(counts, self._lateness.until, strict=True)
        if all(count >= until for count, until in due):
            self._run_late_work()

    def _run_late_work(self) -> None:
        self._is_over = True
        late, self._late = self._late, []
        given = [tensor for entry in late for tensor in entry.tensors]
        written = [tensor for entry in late for tensor in entry.written]
        memory = _memory_of([*given, *written])
        with self.not_recording_accesses(), torch.no_grad(), memory:
            self._spoil(given, lambda number: number == self._lateness.overwritten)
            for entry in late:
                entry.run()
        self._late_starts.clear()

    def _spoil(
        self, tensors: Iterable[torch.Tensor], is_meant: Callable[[int], bool]
    ) -> None:
        """Fill the tensors of some storages with garbage."""
        for tensor in tensors:
            local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
            if local.is_floating_point() and is_meant(self.storages.of(local).number):
                local.data.fill_(_GARBAGE)


def adversaries(
    pairs: Iterable[Unordered], traces: Traces, semantics: Semantics = "stream"
) -> Iterator[tuple[Unordered, int, AdversarialRecorder]]:
    """Yield pairs without an order, each with a rank, and its recorder that turns a pair around."""
    for pair in pairs:
        for inversion in inversions(pair, traces, semantics):
            lateness = Lateness.of(inversion, traces[inversion.rank])
            yield pair, inversion.rank, AdversarialRecorder(lateness)


class _LateRecording(AccessRecording):
    """Passes every operator to the adversary before it runs."""

    def __init__(self, *given: Any, operate: Callable[..., Any], **named: Any) -> None:
        super().__init__(*given, **named)
        self._operate = operate

    @override
    def __torch_dispatch__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        effects = effects_of(func)

        run = partial(super().__torch_dispatch__, func, types, args, kwargs)
        is_seen = all(kind is DTensor for kind in types)
        if effects is None or self._is_silent or not is_seen:
            return run()
        return self._operate(effects, func, args, kwargs or {}, run)


@contextmanager
def _memory_of(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Let tensors that `resize_` took the memory of have garbage for a block."""
    local = (t.to_local() if isinstance(t, DTensor) else t for t in tensors)
    lacking = [tensor for tensor in local if not has_memory(tensor)]
    sizes = [tensor.untyped_storage().nbytes() for tensor in lacking]
    for tensor in lacking:
        tensor.untyped_storage().resize_(tensor_region(tensor, 0).end_byte)
        if tensor.is_floating_point():
            tensor.data.fill_(_GARBAGE)
    try:
        yield
    finally:
        for tensor, size in zip(lacking, sizes, strict=True):
            tensor.untyped_storage().resize_(size)


def _positions(
    events: Sequence[records.TraceRecord], kind: type[records.TraceRecord]
) -> list[int]:
    return [index for index, event in enumerate(events) if isinstance(event, kind)]


def _copy(values: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _apart(tree: Any) -> Any:
    """Exchange tensors for aliases of the same memory."""
    # Kept tensors would change autograd: it takes a gradient over or copies it depending on
    # the number of references, and refuses a saved tensor by its count of writes. An alias
    # shares neither the references nor the count.
    return tree_map_only(torch.Tensor, _alias, tree)


def _alias(tensor: torch.Tensor) -> torch.Tensor:
    if not isinstance(tensor, DTensor):
        return tensor.data
    return DTensor.from_local(
        tensor.to_local().data,
        tensor.device_mesh,
        tensor.placements,
        run_check=False,
        shape=tensor.shape,
        stride=tensor.stride(),
    )
