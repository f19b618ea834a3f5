"""The cost of a run: what a subject sends, how much of it may overlap, and what it holds.

Note [A cost that two runs share]
    A change of the subject's source has to leave what the subject is for: few launches,
    reductions beside the backward, and little memory. All are counted from the trace, without
    a clock, so two runs of one scenario on two machines cost the same.

    | number | what a regression looks like |
    |---|---|
    | launches, bursts | a bucket for each parameter |
    | early bytes | buckets wait for `wait()` |
    | bytes beside operators | a wait in a hook stops the backward |
    | peak bytes | a copy of each bucket, a list that is never cleared |
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

import torch
from typing_extensions import override

from syncverify.judge.ordering.happens_before import Lane, Observer, walk
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.sim.recording.raw_accesses import RawAccess, RawFree, RawPlace, merged
from syncverify.trace import records
from syncverify.trace.run import Traces
from syncverify.trace.source_lines import NoLine


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run costs, summed over all ranks and steps."""

    launches: int = 0  # collectives over two ranks or more, in backward and `wait()`
    reductions: int = 0  # those that reduce
    # Times that launches follow each other without an operator of backward in between. One bucket
    # that is launched parameter by parameter is one.
    bursts: int = 0
    reduced_bytes: int = 0  # that the reductions take in
    early_bytes: int = 0  # those of reductions that are launched before backward ends
    # Bytes of each early reduction, times the number of operators that the same backward queues
    # after it, and the part of them that may run while the reduction does.
    followed: int = 0
    beside: int = 0
    # Bytes of each early reduction, times the share of the backward that came before.
    waited: float = 0.0
    # Most bytes that live on a rank at one time, summed over ranks.
    peak_bytes: int = 0

    @property
    def overlap(self) -> float:
        """Return the share of the operators after early launches that may run beside them."""
        return self.beside / self.followed if self.followed else 1.0

    @property
    def delay(self) -> float:
        """Return the share of backward that is over when an early byte is launched."""
        return self.waited / self.early_bytes if self.early_bytes else 0.0


class MeasuringRecorder(RankRecorder):
    """A recorder that also keeps all operators, and notes how much memory lives at one time."""

    def __init__(self) -> None:
        super().__init__()
        self.everything: list[records.TraceRecord] = []
        self.peak_bytes = 0

    @override
    def launch(
        self, operation: str, tensors: list[torch.Tensor], **fields: Any
    ) -> records.CollectiveLaunch:
        launched = super().launch(operation, tensors, **fields)
        self._note_memory()
        return launched

    @override
    def _finished(
        self, raw: list[RawAccess | RawFree | RawPlace]
    ) -> list[records.TraceRecord]:
        self.everything = merged(self.trace, raw, keeps_everything=True)
        return super()._finished(raw)

    @override
    @contextmanager
    def calling(self, moment: records.Moment) -> Iterator[None]:
        with super().calling(moment):
            yield
        self._note_memory()

    @override
    def _note_operator(self, *noted: Any) -> None:
        super()._note_operator(*noted)
        self._note_memory()

    def _note_memory(self) -> None:
        self.peak_bytes = max(self.peak_bytes, self.storages.num_living_bytes)


def cost_of(traces: Traces, peak_bytes: int = 0) -> Cost:
    """Return the cost of a run, whose traces have all operators of backward."""
    launches = [each for trace in traces for each in trace if _is_of_a_step(each)]
    reductions = [each for each in launches if each.reduces]
    overlaps = _Overlaps()
    walk(traces, "stream", overlaps)
    early = [(one, each) for each in overlaps.backwards for one in each.launched]
    waited = sum(
        one.num_bytes * one.num_operators_before / (each.num_operators or 1)
        for one, each in early
    )
    return Cost(
        launches=len(launches),
        reductions=len(reductions),
        bursts=sum(map(_num_bursts, traces)),
        reduced_bytes=sum(map(bytes_of, reductions)),
        early_bytes=sum(one.num_bytes for one, _ in early),
        followed=overlaps.followed,
        beside=overlaps.beside,
        waited=round(waited, 6),
        peak_bytes=peak_bytes,
    )


def bytes_of(launch: records.CollectiveLaunch) -> int:
    """Return the bytes that a rank contributes to a collective."""
    dtype: torch.dtype | None = getattr(torch, launch.dtype, None)
    return launch.numel * (dtype.itemsize if dtype else 0)


def _is_of_a_step(record: records.TraceRecord) -> TypeGuard[records.CollectiveLaunch]:
    return (
        isinstance(record, records.CollectiveLaunch)
        and len(record.ranks) > 1
        and record.moment.phase in {"backward", "wait"}
    )


def _num_bursts(trace: Sequence[records.TraceRecord]) -> int:
    ends = (
        r
        for r in trace
        if isinstance(r, records.SubjectCall) or _is_backward(r) or _is_of_a_step(r)
    )
    return sum(is_launch for is_launch, _ in itertools.groupby(ends, _is_of_a_step))


def _is_backward(record: records.TraceRecord) -> bool:
    """Tell whether autograd queued an operator."""
    return (
        isinstance(record, records.Access)
        and record.source == NoLine.AUTOGRAD
        and record.moment.phase == "backward"
    )


class _Early(NamedTuple):
    """A reduction that was launched in backward."""

    lane: int
    entry: int  # of the reduction, in its lane
    num_bytes: int
    num_operators_before: int  # of the backward, before the launch


@dataclass(slots=True)
class _Backward:
    """The backward of one micro-batch on one rank."""

    moment: records.Moment
    launched: list[_Early] = field(default_factory=list)
    num_operators: int = 0


class _Overlaps(Observer):
    """Counts the operators that may run beside each early reduction; the sums are those of `Cost`."""

    def __init__(self) -> None:
        self.backwards = list[_Backward]()
        self._now = dict[int, _Backward]()  # by rank
        self.followed = self.beside = 0

    @override
    def queued(self, index: int, lane: Lane, use: records.MemoryUse) -> None:
        now = self._now.get(lane.rank)
        if now is None or now.moment != use.moment:
            now = self._now[lane.rank] = _Backward(use.moment)
            self.backwards.append(now)
        if isinstance(use, records.CollectiveLaunch):
            if use.reduces and use.moment.phase == "backward":
                entry, before = lane.clock[lane.index], now.num_operators
                now.launched.append(_Early(lane.index, entry, bytes_of(use), before))
        elif _is_backward(use):
            now.num_operators += 1
            for early in now.launched:
                self.followed += early.num_bytes
                if lane.clock.get(early.lane, 0) < early.entry:
                    self.beside += early.num_bytes
