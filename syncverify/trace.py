"""The trace: ordered records of what one rank did.

Events are the only way from running to judging: a backend writes them, properties read
them. Each is stamped with where in the training run it happened, and with the stream
that it was enqueued on (`default` until a backend has several).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from typing_extensions import override

from syncverify.memory import MemoryRegion, tensor_region

Phase = Literal["bind", "backward", "wait", "zero_grad", "unbind", "after_unbind"]

DEFAULT_STREAM = "default"
REDUCING_OPERATIONS = frozenset(
    {"all_reduce", "reduce", "reduce_scatter", "reduce_scatter_single"}
)

_MAX_RANKS_NAMED = 16


@dataclass(frozen=True, slots=True)
class Moment:
    """Where in the training run an event happened.

    Attributes:
        phase: Which call of the rank program was under way.
        step: Optimizer step, from 0.
        micro_batch: Micro-batch of the step; None outside of a backward.
    """

    phase: Phase
    step: int
    micro_batch: int | None = None

    @override
    def __str__(self) -> str:
        """Say it in words."""
        if self.micro_batch is None:
            return f"step {self.step}, {self.phase}"
        return f"step {self.step}, micro-batch {self.micro_batch}, {self.phase}"


@dataclass(frozen=True, slots=True)
class LifecycleCall:
    """The rank program is about to call a method of the subject.

    Attributes:
        moment: Which call.
        stream: Stream that is current.
    """

    moment: Moment
    stream: str = DEFAULT_STREAM


@dataclass(frozen=True, slots=True)
class LifecycleReturn:
    """The call returned; it has the fields of the call."""

    moment: Moment
    stream: str = DEFAULT_STREAM


@dataclass(frozen=True, slots=True)
class Access:
    """An operator was queued that reads or writes memory.

    Attributes:
        moment: When.
        stream: Stream that it was queued on.
        operator: Name of the operator, such as `aten.add_.Tensor`.
        reads: Memory that it reads.
        writes: Memory that it writes.
        source: The line that asked for it.
    """

    moment: Moment
    stream: str
    operator: str
    reads: tuple[MemoryRegion, ...]
    writes: tuple[MemoryRegion, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Mark:
    """An event was recorded: a mark in a stream, after all that it holds by now.

    Attributes:
        moment: When.
        stream: Stream that holds the mark.
        mark: Number of the mark, unique on its rank.
        source: The line that asked for it.
    """

    moment: Moment
    stream: str
    mark: int
    source: str


@dataclass(frozen=True, slots=True)
class StreamWait:
    """Whatever a stream is given from now on runs after a mark.

    Attributes:
        moment: When.
        stream: Stream that waits.
        mark: Number of the mark.
        source: The line that asked for it.
    """

    moment: Moment
    stream: str
    mark: int
    source: str


@dataclass(frozen=True, slots=True)
class HostWait:
    """The host went on only after the device had passed a mark.

    Attributes:
        moment: When.
        mark: Number of the mark.
        source: The line that asked for it.
    """

    moment: Moment
    mark: int
    source: str


@dataclass(frozen=True, slots=True)
class StorageFreed:
    """The last reference to a storage went away, and its memory back to a pool.

    Attributes:
        moment: When.
        storage: Number of the storage.
        stream: Stream whose pool it came from and returns to.
        recorded_streams: Streams for which `Tensor.record_stream` defers the return.
    """

    moment: Moment
    storage: int
    stream: str
    recorded_streams: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CollectiveLaunch:
    """A collective was issued.

    Attributes:
        moment: When.
        ranks: Global ranks of the communicator, in group order.
        sequence: Position among this rank's collectives on that communicator.
        operation: torch's name of it, such as `all_reduce`.
        reduce_op: `SUM`, `AVG`, ...; empty where nothing is reduced.
        dtype: Name of the element dtype.
        numel: Elements that this rank contributes.
        regions: Memory that this rank contributes.
        parameters: Names of the parameters whose gradients lie in those regions.
        source: The subject's line that issued it.
        stream: Stream that it was issued on.
        communication_stream: Stream that it runs on: NCCL has one of its own for each
            communicator, which first waits for `stream`; a synchronous call (of torch 2.8
            and later) runs on `stream` itself.
        written: Memory that receives results.
    """

    moment: Moment
    ranks: tuple[int, ...]
    sequence: int
    operation: str
    reduce_op: str
    dtype: str
    numel: int
    regions: tuple[MemoryRegion, ...]
    parameters: tuple[str, ...]
    source: str
    stream: str = DEFAULT_STREAM
    communication_stream: str = DEFAULT_STREAM
    written: tuple[MemoryRegion, ...] = ()

    @property
    def reduces(self) -> bool:
        """Tell whether values of several ranks are combined; over one rank nothing is."""
        return self.operation in REDUCING_OPERATIONS and len(self.ranks) > 1

    @property
    def signature(self) -> tuple[str, str, str, int]:
        """Return what must be equal on all ranks of the communicator."""
        return (self.operation, self.reduce_op, self.dtype, self.numel)

    @override
    def __str__(self) -> str:
        """Say it in words."""
        reduce_op = f" {self.reduce_op}" if self.reduce_op else ""
        return (
            f"{self.operation}{reduce_op} of {self.numel} x {self.dtype} over ranks "
            f"{_shortened(self.ranks)}, at {self.source}"
        )


@dataclass(frozen=True, slots=True)
class CollectiveWait:
    """A collective was waited for; its result may be read from here on.

    Attributes:
        moment: When.
        ranks: Global ranks of the communicator.
        sequence: Which of its collectives.
        stream: Stream that waits for it: NCCL orders only what that stream is given
            from now on. gloo blocks the host.
    """

    moment: Moment
    ranks: tuple[int, ...]
    sequence: int
    stream: str = DEFAULT_STREAM


Event = (
    LifecycleCall
    | LifecycleReturn
    | CollectiveLaunch
    | CollectiveWait
    | Access
    | Mark
    | StreamWait
    | HostWait
    | StorageFreed
)


def _shortened(ranks: tuple[int, ...]) -> str:
    """Name the ranks of a communicator, which may be thousands."""
    if len(ranks) <= _MAX_RANKS_NAMED:
        return str(list(ranks))
    return f"[{ranks[0]}, {ranks[1]}, ..., {ranks[-1]}] ({len(ranks)})"


class StorageNumbers:
    """Number storages in order of appearance, so that traces compare across runs.

    A storage that was freed loses its number, even if its address is used again.
    """

    def __init__(self) -> None:
        self._references: dict[int, tuple[StorageWeakRef, int]] = {}
        self._next_number = 0

    def region(self, tensor: torch.Tensor) -> MemoryRegion:
        """Return the bytes that a tensor consists of."""
        return tensor_region(tensor, self._number(tensor))

    def _number(self, tensor: torch.Tensor) -> int:
        reference = StorageWeakRef(tensor.untyped_storage())
        known = self._references.get(reference.cdata)
        if known is not None and not known[0].expired():
            return known[1]
        number, self._next_number = self._next_number, self._next_number + 1
        self._references[reference.cdata] = (reference, number)
        return number


class Recorder:
    """Collects the events of one rank.

    Attributes:
        events: What was recorded, in host order.
        moment: Stamp of the next event; the rank program moves it on.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.moment = Moment("bind", 0)
        self._numbers = StorageNumbers()
        self._sequences: dict[tuple[int, ...], int] = {}
        self._gradients: Callable[[], Mapping[str, torch.Tensor]] = dict

    def watch(self, gradients: Callable[[], Mapping[str, torch.Tensor]]) -> None:
        """Learn how to find the current local gradients, by parameter name."""
        self._gradients = gradients

    def enter(self, moment: Moment) -> None:
        """Note that the rank program is about to call the subject."""
        self.moment = moment
        self.events.append(LifecycleCall(moment))

    def launch(
        self,
        operation: str,
        tensors: list[torch.Tensor],
        *,
        ranks: tuple[int, ...],
        reduce_op: str,
        source: str,
    ) -> CollectiveLaunch:
        """Record a collective as it is issued.

        Args:
            operation: torch's name of it.
            tensors: What this rank contributes.
            ranks: Global ranks of the communicator.
            reduce_op: Name of the reduction, or an empty string.
            source: The line that issued it.

        Returns:
            The record.
        """
        regions = tuple(self._numbers.region(tensor) for tensor in tensors)
        sequence = self._sequences.get(ranks, 0)
        self._sequences[ranks] = sequence + 1
        event = CollectiveLaunch(
            moment=self.moment,
            ranks=ranks,
            sequence=sequence,
            operation=operation,
            reduce_op=reduce_op,
            dtype=str(tensors[0].dtype).removeprefix("torch.") if tensors else "",
            numel=sum(tensor.numel() for tensor in tensors),
            regions=regions,
            parameters=self._owners(regions),
            source=source,
        )
        self.events.append(event)
        return event

    def wait(self, launched: CollectiveLaunch) -> None:
        """Record that the host waited for a collective."""
        self.events.append(
            CollectiveWait(self.moment, launched.ranks, launched.sequence)
        )

    def _owners(self, regions: tuple[MemoryRegion, ...]) -> tuple[str, ...]:
        return tuple(
            name
            for name, gradient in self._gradients().items()
            if any(
                self._numbers.region(gradient).overlaps(region) for region in regions
            )
        )
