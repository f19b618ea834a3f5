"""Run a scenario again in an order that its streams allow and its author did not think of.

Operators run as the host queues them. To run one late, we let it run at once, for its
results must exist, take back what it wrote, and run it again when its time has come. What
it is given the second time is what a device would have given it then. A collective is put
off as a whole, or its results are.

Which operators are late is said by number: same scenario, same schedule, same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves, tree_map_only
from typing_extensions import override

from syncverify.ordering.inversions import Inversion
from syncverify.run import RankRun
from syncverify.sim.access_recording import AccessRecording
from syncverify.sim.operators import Effects, effects_of, tensors_at
from syncverify.sim.rank_recorder import RankRecorder
from syncverify.trace import (
    Access,
    CollectiveLaunch,
    CollectiveWait,
    Event,
    Moment,
    Place,
)

_COUNTED = (Access, CollectiveLaunch, CollectiveWait)
# What nobody should read.
_GARBAGE = math.nan


@dataclass(frozen=True, slots=True)
class Lateness:
    """An inversion, by numbers that hold before a trace is complete.

    Attributes:
        operators: Numbers of operators that run late.
        starts: Numbers of collectives that start late.
        operator_results: Numbers of operators whose results are late.
        results: Numbers of collectives whose results are late.
        until: How many operators, collectives and waits come before late work runs.
        overwritten: Storage that has other contents by then.
    """

    operators: frozenset[int]
    starts: frozenset[int]
    operator_results: frozenset[int]
    results: frozenset[int]
    until: tuple[int, int, int]
    overwritten: int | None

    @staticmethod
    def of(inversion: Inversion, events: Sequence[Event]) -> Lateness:
        """Count in a trace that kept everything.

        Args:
            inversion: By positions in the trace.
            events: Of its rank.

        Returns:
            The same in numbers.
        """
        operators, launches = (
            {index: number for number, index in enumerate(_positions(events, kind))}
            for kind in (Access, CollectiveLaunch)
        )
        before = events[: inversion.until]
        return Lateness(
            frozenset(operators[i] for i in inversion.late if i in operators),
            frozenset(launches[i] for i in inversion.late if i in launches),
            frozenset(operators[i] for i in inversion.late_results if i in operators),
            frozenset(launches[i] for i in inversion.late_results if i in launches),
            tuple(len(_positions(before, kind)) for kind in _COUNTED),  # type: ignore[arg-type]  # three kinds
            inversion.overwritten,
        )


@dataclass(slots=True)
class _Late:
    """Something that runs late, and the tensors that it is given."""

    run: Callable[[], None]
    tensors: list[torch.Tensor] = field(default_factory=list)


class AdversarialRecorder(RankRecorder):
    """Records one rank, and runs some of its work late.

    Args:
        lateness: What runs late.

    Attributes:
        gave_up: Whether something that is late could not be put off.
    """

    def __init__(self, lateness: Lateness) -> None:
        self._lateness = lateness
        self._late: list[_Late] = []
        self._num_operators = self._num_launches = self._num_waits = 0
        self._late_starts: set[Place] = set()
        self._is_over = False
        self.gave_up = False
        # Gradients as they were at last, by when the training program asked for them.
        self._late_reads: dict[Moment, list[torch.Tensor]] = {}
        super().__init__(keeps_everything=True)

    @override
    def _recording_mode(self) -> AccessRecording:
        return _LateRecording(
            self._note_operator,
            on_arguments=self._note_arguments,
            num_events=lambda: len(self.events),
            operate=self._operate,
        )

    @override
    def _note_operator(self, *noted: Any) -> None:
        before = len(self._raw)
        super()._note_operator(*noted)
        self._num_operators += len(self._raw) - before

    def _operate(
        self,
        effects: Effects,
        operator: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run: Callable[[], Any],
    ) -> Any:
        """Run an operator, and take back what it wrote if it is late."""
        self._catch_up()
        number = self._num_operators
        touches = effects.writes or effects.fills  # to allocate is not to touch
        numbers = self._lateness.operators | self._lateness.operator_results
        if not (touches and self._is_late(number, numbers)):
            return run()
        args, kwargs = _apart((args, kwargs))
        written = tensors_at(effects.writes, args, kwargs)
        before = [tensor.clone() for tensor in written]
        num_launches, num_storages = self._num_launches, self.storages.num_seen
        result = run()
        if self._num_operators == number:
            return result  # it touches nothing that a device holds
        if self._num_launches != num_launches:
            self.gave_up = True  # it communicates: that cannot be done twice
            return result
        results = _tensors(_apart(result))
        values = [tensor.clone() for tensor in (*written, *results)]
        for tensor, value in zip(written, before, strict=True):
            tensor.copy_(value)
        self._spoil(results, lambda number: number >= num_storages)

        def write() -> None:
            for old, new in zip((*written, *results), values, strict=True):
                old.copy_(new)

        def run_again() -> None:
            again = _tensors(operator(*args, **kwargs))
            for old, new in zip(results, again, strict=True):
                old.copy_(new)

        is_run = number in self._lateness.operator_results
        given = _tensors((args, kwargs))
        self._late.append(_Late(write) if is_run else _Late(run_again, given))
        return result

    @override
    def read(self, operator: str, tensors: Iterable[torch.Tensor]) -> None:
        self._catch_up()
        given, moment, number = list(tensors), self.moment, self._num_operators
        super().read(operator, given)
        self._num_operators += 1
        if self._is_late(number, self._lateness.operators):

            def read_again() -> None:
                self._late_reads[moment] = [tensor.clone() for tensor in given]

            self._late.append(_Late(read_again, given))

    @override
    def launch(
        self, operation: str, tensors: list[torch.Tensor], **told: Any
    ) -> CollectiveLaunch:
        self._catch_up()
        launched = super().launch(operation, tensors, **told)
        if self._is_late(self._num_launches, self._lateness.starts):
            self._late_starts.add(launched.place)
            self._late.append(_Late(_nothing, list(tensors)))
        return launched

    @override
    def start(self, launched: CollectiveLaunch, run: Callable[[], None]) -> None:
        self._num_launches += 1
        if launched.place in self._late_starts:
            self._late.append(_Late(run))
        else:
            run()

    @override
    def end(self, launched: CollectiveLaunch, run: Callable[[], None]) -> None:
        self._catch_up()
        launches = [e for e in self.events if isinstance(e, CollectiveLaunch)]
        has_late_results = self._is_late(
            launches.index(launched), self._lateness.results
        )
        if has_late_results or launched.place in self._late_starts:
            self._late.append(_Late(run))
        else:
            run()

    @override
    def wait(self, launched: CollectiveLaunch) -> None:
        super().wait(launched)
        self._num_waits += 1

    @override
    @contextmanager
    def calling(self, moment: Moment) -> Iterator[None]:
        self._catch_up()
        with super().calling(moment):
            yield
            self._catch_up()

    @override
    def finish(self) -> None:
        self._run_late_work()
        super().finish()

    def correct(self, played: RankRun) -> None:
        """Let observed gradients be what they were when they were read at last.

        Args:
            played: What came out of this rank.
        """
        for moment, tensors in self._late_reads.items():
            observation = played.at("reduced", moment.step)
            if observation is not None:
                seen = [g for g in observation.gradients.values() if g is not None]
                for gradient, late in zip(seen, tensors, strict=True):
                    gradient.copy_(late)

    def _is_late(self, number: int, late: frozenset[int]) -> bool:
        return number in late and not self._is_over

    def _catch_up(self) -> None:
        """Run what is late, if everything else that comes before has run."""
        counts = (self._num_operators, self._num_launches, self._num_waits)
        due = zip(counts, self._lateness.until, strict=True)
        if not self._is_over and all(count >= until for count, until in due):
            self._run_late_work()

    def _run_late_work(self) -> None:
        self._is_over = True
        late, self._late = self._late, []
        with self.not_recording_accesses(), torch.no_grad():
            for entry in late:
                self._spoil(
                    entry.tensors, lambda number: number == self._lateness.overwritten
                )
            for entry in late:
                entry.run()
        self._late_starts.clear()

    def _spoil(
        self, tensors: Iterable[torch.Tensor], is_meant: Callable[[int], bool]
    ) -> None:
        """Fill what lies in some storages with what nobody should read."""
        for tensor in tensors:
            local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
            if local.is_floating_point() and is_meant(self.storages.of(local).number):
                local.data.fill_(_GARBAGE)


class _LateRecording(AccessRecording):
    """Sees every operator before it runs."""

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
        """Let the adversary run it."""
        effects = effects_of(func)

        def run() -> Any:
            return super(_LateRecording, self).__torch_dispatch__(
                func, types, args, kwargs
            )

        is_seen = all(kind is DTensor for kind in types)
        if effects is None or self._is_silent or not is_seen:
            return run()
        return self._operate(effects, func, args, kwargs or {}, run)


def _positions(events: Sequence[Event], kind: type[Event]) -> list[int]:
    return [index for index, event in enumerate(events) if isinstance(event, kind)]


def _nothing() -> None:
    pass


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _apart(tree: Any) -> Any:
    """Exchange tensors for others of the same memory."""
    # Whether autograd takes a gradient over or copies it depends on who else holds the
    # tensor, and whether it refuses a saved one on its count of writes. These are neither.
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
