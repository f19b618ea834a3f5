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

Phase = Literal["bind", "backward", "wait", "zero_grad", "unbind", "after_unbind"]

REDUCING_OPERATIONS = frozenset(
    {"all_reduce", "reduce", "reduce_scatter", "reduce_scatter_single"}
)


@dataclass(frozen=True, slots=True)
class MemoryRegion:
    """Bytes of one storage.

    Attributes:
        storage: Number of the storage, in order of first appearance on its rank.
        start_byte: First byte.
        end_byte: One past the last byte.
    """

    storage: int
    start_byte: int
    end_byte: int

    def overlaps(self, other: MemoryRegion) -> bool:
        """Tell whether the two regions share a byte."""
        first_shared = max(self.start_byte, other.start_byte)
        return self.storage == other.storage and first_shared < min(
            self.end_byte, other.end_byte
        )


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
    """The rank program is about to call a method of the subject."""

    moment: Moment


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
        regions: Memory that it reads and writes.
        parameters: Names of the parameters whose gradients lie in those regions.
        source: The subject's line that issued it.
        stream: Stream that it was issued on.
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
    stream: str = "default"

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
            f"{list(self.ranks)}, at {self.source}"
        )


@dataclass(frozen=True, slots=True)
class CollectiveWait:
    """The host waited for a collective; its result may be read from here on."""

    moment: Moment
    ranks: tuple[int, ...]
    sequence: int


Event = LifecycleCall | CollectiveLaunch | CollectiveWait


class StorageNumbers:
    """Number storages in order of appearance, so that traces compare across runs.

    A storage that was freed loses its number, even if its address is used again.
    """

    def __init__(self) -> None:
        self._references: dict[int, tuple[StorageWeakRef, int]] = {}
        self._next_number = 0

    def region(self, tensor: torch.Tensor) -> MemoryRegion:
        """Return the bytes between a tensor's first and last element."""
        start = int(tensor.storage_offset())
        extent = 1 + sum(
            (size - 1) * stride
            for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        )
        end = start + (extent if tensor.numel() else 0)
        width = tensor.element_size()
        return MemoryRegion(self._number(tensor), start * width, end * width)

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
