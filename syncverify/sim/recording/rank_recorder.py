"""Write the trace of one simulated rank: its streams, accesses and lifetimes."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from typing_extensions import override

from syncverify.holding import holding
from syncverify.sim.device.host_copies import thread_reads
from syncverify.sim.device.streams import RankStreams
from syncverify.sim.device.torch_internals import local_part
from syncverify.sim.recording.engine_watch import EngineWatch
from syncverify.sim.recording.host_reader import HostReader, ThreadReader
from syncverify.sim.recording.operators import (
    AccessRecording,
    Effects,
    OperatorSite,
    effects_of,
    needs_no_value,
    site_of,
    tensors_at,
)
from syncverify.sim.recording.raw_accesses import (
    RawAccess,
    RawFree,
    RawPlace,
    RawRegion,
    merged,
    without_order,
)
from syncverify.sim.recording.storages import Storage, StorageTable
from syncverify.sim.recording.threads import thread_identity
from syncverify.sim.recording.unwritten_memory import UnwrittenMemory
from syncverify.trace.recorder import Recorder
from syncverify.trace.records import HOST, CollectiveLaunch, TraceRecord, UnwrittenRead
from syncverify.trace.regions import MemoryRegion, has_memory, strided_region
from syncverify.trace.source_files import is_torch_line
from syncverify.trace.source_lines import NoLine, Origin
from syncverify.trace.stacks import RawFrames, line_of, subject_frames

# Collectives in which a rank may give no data.
_RECEIVING = frozenset({"broadcast", "recv", "scatter"})
# `detach()` and `Tensor.data` record no graph, so they make no node of their argument.
_DETACH = torch.ops.aten.detach.default


class RankRecorder(Recorder):
    """Collects the events of one simulated rank.

    Args:
        records_accesses: Whether operators are recorded; False saves time for a rank with
            one stream.
        keeps_everything: Whether every noted operator becomes an event, so that the n-th
            operator of one run is the n-th of the next.
        watches_engine: Whether backward passes are logged: their nodes and hooks.
    """

    def __init__(
        self,
        *,
        records_accesses: bool = True,
        keeps_everything: bool = False,
        watches_engine: bool = False,
    ) -> None:
        super().__init__()
        self.streams = RankStreams(self)
        self.storages = self._numbers = StorageTable(self._note_freed)
        self._records_accesses = records_accesses
        self._keeps_everything = keeps_everything
        self._raw: list[RawAccess | RawFree | RawPlace] = []
        self._mode = self._recording_mode()
        self._communicators: dict[str, str] = {}
        # Numbers of storages; see Note [Memory of the host].
        self._on_host: set[int] = set()
        self._pinned: set[int] = set()
        self.host_reader = HostReader(
            self.storages, self._on_host, self._note_region, self._note_blocking_copy
        )
        self._thread_readers: list[ThreadReader] = []
        self._unwritten = UnwrittenMemory()
        # Source of operators without a line of the subject.
        self._outside = NoLine.AUTOGRAD
        self._runs_on_host = False  # a collective that uses no device
        self.engine_watch = EngineWatch(self) if watches_engine else None

    def note_place(self) -> RawPlace:
        """Return a new mark of the present place in the trace."""
        place = RawPlace(len(self.trace))
        self._raw.append(place)
        return place

    def _recording_mode(self) -> AccessRecording:
        return AccessRecording(
            self._note_operator,
            on_arguments=self._note_arguments,
            num_events=lambda: len(self.trace),
        )

    @property
    def lacks_accesses(self) -> bool:
        """Tell whether accesses matter (there are several streams) and were not recorded."""
        return not (self._records_accesses or self.streams.is_alone)

    @property
    def num_recorded(self) -> int:
        """Number of records so far, with accesses that `finish()` may leave out."""
        return len(self.trace) + len(self._raw)

    def recorded_so_far(self) -> list[TraceRecord]:
        """Return the trace that `finish()` would leave now."""
        return merged(self.trace, self._raw, self.storages.moved)

    def finish(self) -> None:
        """End the recording, and turn raw accesses into records of the trace."""
        for reader in self._thread_readers:
            reader.close()
            reader.arrive()
        self.host_reader.close()
        self.storages.close()
        self.streams.in_flight.clear()
        # Gradients hold the mesh, and the mesh this recorder: a cycle through the `grad` of
        # a tensor, which Python's collector does not see.
        self.watch(dict)
        raw, self._raw = self._raw, []
        self.trace[:] = self._finished(raw)
        if self.engine_watch is not None:
            self.engine[:] = self.engine_watch.passes()
            self.engine_watch = None

    def _finished(self, raw: list[RawAccess | RawFree | RawPlace]) -> list[TraceRecord]:
        moved, keeps_everything = self.storages.moved, self._keeps_everything
        if self.streams.is_alone and not keeps_everything:
            places = [each for each in raw if isinstance(each, RawPlace)]
            return merged(without_order(self.trace, places), places, moved)
        return merged(self.trace, raw, moved, keeps_everything=keeps_everything)

    @override
    def current_stream(self) -> str:
        return HOST if self._runs_on_host else self.streams.current().name

    @override
    def recording_accesses(self) -> AbstractContextManager[None]:
        return self._switched(serves_subject=True)

    @override
    def not_recording_accesses(self) -> AbstractContextManager[None]:
        return self._switched(serves_subject=False)

    @override
    @contextmanager
    def optimizing(self) -> Iterator[None]:
        with holding(self, "_outside", NoLine.OPTIMIZER), self.recording_accesses():
            yield

    @contextmanager
    def _switched(self, *, serves_subject: bool) -> Iterator[None]:
        before = self.streams.serves_subject
        self._switch(serves_subject)
        try:
            yield
        finally:
            self._switch(before)

    def _switch(self, serves_subject: bool) -> None:  # noqa: FBT001  # the only argument
        self.streams.serves_subject = serves_subject
        self._mode.switch(on=serves_subject and self._records_accesses)

    @override
    @contextmanager
    def computing_loss(self, parameters: Iterable[torch.Tensor]) -> Iterator[None]:
        with self.not_recording_accesses():
            held = self.streams.engine.tag_new_leaves(parameters)
            yield
            del held

    @override
    def read(
        self,
        operator: str,
        tensors: Iterable[torch.Tensor],
        reader: NoLine = NoLine.OPTIMIZER,
    ) -> None:
        if self._records_accesses:
            by_stream: dict[str, list[torch.Tensor]] = {}
            for tensor in tensors:
                stream = HOST if self.is_on_host(tensor) else self.current_stream()
                by_stream.setdefault(stream, []).append(tensor)
            for stream, read in by_stream.items():
                self._note_read(operator, stream, read, reader)
            if self._unwritten.fresh or self._unwritten.uses:
                read = [tensor for each in by_stream.values() for tensor in each]
                is_result = reader is NoLine.RETURN
                if not is_result:
                    regions = map(self.storages.region, read)
                    self._unwritten.use(operator, regions, (), lambda: reader)
                self.show(read, may_be_padding=is_result)

    def show(self, values: Iterable[object], *, may_be_padding: bool = False) -> None:
        """Look at tensors and numbers that come to light; see Note [A sign in fresh memory].

        Elements of a tensor may be padding, which does not count.
        """
        use = self._unwritten.came_to_light(values, may_be_padding=may_be_padding)
        if use is not None:
            lines = map(_origin, (use.made_at, use.line))
            stream, operator = self.current_stream(), use.operator
            found = UnwrittenRead(self.moment, stream, operator, *lines)
            if found not in self.trace:
                self.trace.append(found)

    def _note_read(
        self,
        operator: str,
        stream: str,
        tensors: Iterable[torch.Tensor],
        line: RawFrames | NoLine,
    ) -> None:
        reads = [self._touch(tensor, stream) for tensor in tensors]
        at = len(self.trace), self.moment
        self._raw.append(RawAccess(*at, stream, operator, reads, [], line))

    def keep_for_thread(self, wait: Callable[[], None]) -> bool:
        """Return whether a wait of the calling thread is kept until the rank waits for the thread.

        It is not for a thread without a reader of this rank.
        """
        reader = thread_reads()
        if not isinstance(reader, ThreadReader) or reader not in self._thread_readers:
            return False
        reader.kept.append(wait)
        return True

    def _note_blocking_copy(
        self, function: str, region: RawRegion, line: RawFrames | NoLine
    ) -> None:
        """Note a copy of memory of the device to the host, for which the host waits."""
        current = self.streams.current()
        self._note_region(function, region, line, current.name)
        self.streams.wait_on_host(self.streams.mark(current))

    def _note_region(
        self,
        function: str,
        region: RawRegion,
        line: RawFrames | NoLine,
        stream: str = HOST,
    ) -> None:
        region.storage.touch(stream)
        at = len(self.trace), self.moment
        self._raw.append(RawAccess(*at, stream, function, [region], [], line))

    def reader_of_thread(self) -> ThreadReader:
        """Return what notes the reads of a thread that the rank starts now."""
        reader = ThreadReader(self.storages, self._on_host, self._note_region)
        self._thread_readers.append(reader)
        return reader

    @override
    def as_rank(self) -> Callable[[], AbstractContextManager[None]]:
        return thread_identity()

    @override
    def communication_stream(
        self,
        communicator: str,
        ranks: tuple[int, ...],
        *,
        is_async: bool,
        library: str = "nccl",
    ) -> str:
        if not is_async:
            return self.current_stream()
        if communicator not in self._communicators:
            name = f"{library} stream of ranks {list(ranks)}"
            twins = [n for n in self._communicators.values() if n.startswith(name)]
            label = f"{name}, group {len(twins) + 1}" if twins else name
            self._communicators[communicator] = self.streams.internal(label)
        return self._communicators[communicator]

    @override
    def note_communicated(
        self, tensors: Iterable[torch.Tensor], stream: str, current: str
    ) -> None:
        for tensor in tensors:
            storage = self.storages.of(tensor, current)
            storage.touch(stream)
            storage.is_on_device = storage.number not in self._on_host

    @override
    def launch(
        self, operation: str, tensors: list[torch.Tensor], **fields: Any
    ) -> CollectiveLaunch:
        fields["written"] = [*fields.get("written", ())]
        # gloo takes memory of the host at once, and the host waits for the collective.
        is_of_host = any(map(self.is_on_host, (*tensors, *fields["written"])))
        # A barrier of gloo waits for hosts alone, also where the program has a device.
        if fields.pop("meets_on_host", False) and self.streams.seen is not None:
            self.streams.internal(HOST)
            is_of_host = True
        with holding(self, "_runs_on_host", is_of_host):
            if fields.get("communication_stream") == self.streams.current().name:
                fields["communication_stream"] = self.current_stream()
            launched = super().launch(operation, tensors, **fields)
        if self._unwritten.fresh:
            reads, writes = launched.regions, launched.written
            if operation in _RECEIVING and reads == writes:
                reads = ()  # this rank only receives
            self._unwritten.use(operation, reads, writes, self._line)
        return launched

    @override
    def wait(self, launched: CollectiveLaunch) -> None:
        used = (region.storage for region in (*launched.regions, *launched.written))
        is_of_host = any(number in self._on_host for number in used)
        if launched.operation == "barrier":
            is_of_host = launched.stream == HOST
        with holding(self, "_runs_on_host", is_of_host):
            super().wait(launched)

    @override
    def wait_for_barrier(self, launched: CollectiveLaunch) -> None:
        if launched.stream != HOST:
            self.streams.wait_on_host(self.streams.mark(self.streams.current()))

    @override
    def wait_on_host(self, launched: CollectiveLaunch) -> None:
        self.streams.require_values()
        self.streams.internal(HOST)
        with holding(self, "_runs_on_host", True):
            super().wait(launched)

    def wait_for_copy_of(self, tensor: torch.Tensor) -> bool:
        """Let the host wait for the current stream, if the tensor is on the device."""
        is_on_device = self.storages.of(tensor, self.current_stream()).is_on_device
        # torch does not copy a tensor without an element, and does not wait.
        if is_on_device and tensor.numel():
            self.streams.wait_on_host(self.streams.mark(self.streams.current()))
        return is_on_device

    def place_on_host(self, tensor: torch.Tensor, *, is_pinned: bool = False) -> None:
        """Note that the memory of a tensor is the host's; see Note [Memory of the host]."""
        storage = self.storage_of(tensor)
        self._lay_on_host(storage)
        if is_pinned:
            self._pinned.add(storage.number)

    def keep_together(
        self, target: torch.UntypedStorage, source: torch.UntypedStorage
    ) -> None:
        """Note that a storage lies on the host, if it is new and another one lies there."""
        known = self.storages.known(source)
        is_on_host = known is not None and known.number in self._on_host
        if is_on_host and self.storages.known(target) is None:
            self._lay_on_host(self.storages.add(target, HOST))

    def _lay_on_host(self, storage: Storage) -> None:
        storage.is_on_device = False
        self._on_host.add(storage.number)
        self.streams.internal(HOST)

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Tell whether a copy of the tensor's memory may run while the host goes on."""
        return bool(self._pinned) and self.storage_of(tensor).number in self._pinned

    def is_on_host(self, tensor: torch.Tensor) -> bool:
        """Tell whether the memory of a tensor is known to be the host's."""
        return bool(self._on_host) and self.storage_of(tensor).number in self._on_host

    def storage_of(self, tensor: torch.Tensor) -> Storage:
        """Return the storage of a tensor, or of the local part of a DTensor."""
        if isinstance(tensor, DTensor):
            tensor = tensor._local_tensor  # noqa: SLF001  # faster than a call
        return self.storages.of(tensor, self.current_stream())

    def note_resized(self, storage: torch.UntypedStorage, had_bytes: int) -> None:
        """Note that `resize_` gave memory back, or allocated other memory."""
        self.storages.resized(storage, self.streams.current().name)
        if storage.nbytes() < had_bytes:  # only then a tensor can lack its memory
            self._mode.on_arguments = self._check_arguments

    def _check_arguments(self, operator: Any, args: tuple[Any, ...]) -> None:
        """Raise as a GPU does, where an operator uses memory that was given back.

        Raises:
            RuntimeError: A tensor lies beyond the end of its storage.
        """
        self._note_arguments(operator, args)
        effects = effects_of(operator)
        if effects is None or operator.overloadpacket is torch.ops.aten.resize_:
            return
        for tensor in tensors_at((*effects.reads, *effects.writes), args, None):
            local = local_part(tensor)
            if local.layout is torch.strided and not has_memory(local):
                raise RuntimeError(
                    "CUDA error: an illegal memory access was encountered: expected the "
                    f"memory of a tensor of shape {tuple(local.shape)} for {effects.name}, but "
                    f"`resize_` left its storage {local.untyped_storage().nbytes()} bytes; "
                    "use the tensor before, or allocate its storage again"
                )

    def _note_arguments(self, operator: Any, args: tuple[Any, ...]) -> None:
        """Note the leaves that an operator adds to a graph: it may make their nodes."""
        # A node of autograd that begins with this operator waits for its gradients first.
        self.streams.engine.current()
        if torch.is_grad_enabled() and operator is not _DETACH:
            leaves = [
                each
                for given in args
                for each in (given if isinstance(given, (list, tuple)) else (given,))
                if isinstance(each, torch.Tensor)
                and each.requires_grad
                and each.is_leaf
            ]
            if leaves:
                self._note_leaves(leaves)

    def _note_leaves(self, leaves: list[torch.Tensor]) -> None:
        self.streams.engine.note_leaves(leaves)

    def _note_operator(
        self,
        position: int,
        effects: Effects,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        result: Any,
    ) -> None:
        # Written for speed: a recording spends most of its time here.
        streams = self.streams
        current = streams.engine.current()
        stream = current.name
        read = tensors_at(effects.reads, args, kwargs)
        place = self._place(effects, read, args, kwargs) if self._on_host else "device"
        if place == "nothing" or (
            effects.waits_on_host and needs_no_value(effects, read)
        ):
            return
        if place in {"host", "kernel"}:
            stream = HOST if place == "host" else stream
            read = [one for one in read if self.is_on_host(one) == (place == "host")]
        reads = [self._touch(tensor, stream) for tensor in read]
        writes: list[RawRegion] = []
        if effects.writes:
            # An operator in place reads what it writes: such a tensor is looked at once.
            own, region = (read[0], reads[0]) if read else (None, None)
            writes = [
                region if tensor is own and region else self._touch(tensor, stream)
                for tensor in tensors_at(effects.writes, args, kwargs)
            ]
        made: list[RawRegion] = []
        if result is not None and not (args and result is args[0]):
            self._note_results(result, stream, made)
            if effects.fills:
                writes += made
            elif made and place == "device":
                storages = [region.storage for region in made]
                self._unwritten.allocate(result, storages)
            if place == "host":
                self._on_host.update(region.storage.number for region in writes)
        if self._unwritten.fresh:
            used = map(_byte_region, reads), map(_byte_region, writes)
            self._unwritten.use(effects.name, *used, self._line)
        if effects.waits_on_host:
            self.show((result,))
        if place == "device":
            if reads and any(region.storage.is_on_device for region in reads):
                for region in writes:
                    region.storage.is_on_device = True
            elif effects.waits_on_host:
                return  # the values are in host memory: no wait, and no access on a device
        line = self._line()
        for region in made:
            region.storage.made_at = line
        done = stream, effects.name, reads, writes, line, made
        self._raw.append(RawAccess(position, self.moment, *done))
        if (effects.waits_on_host and place != "host") or place == "blocking copy":
            streams.wait_on_host(streams.mark(current))

    def _line(self) -> RawFrames | NoLine:
        return subject_frames() or self._outside

    def _place(
        self,
        effects: Effects,
        read: list[torch.Tensor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
    ) -> OperatorSite:
        """Return the place at which an operator runs; note a read by the host before it."""
        written = tensors_at(effects.writes, args, kwargs)
        tensors = read + written
        on_host = [self.is_on_host(tensor) for tensor in tensors]
        known = itertools.compress(tensors, on_host)
        are_pinned = all(map(self.is_pinned, known))
        place = site_of(effects, tensors, on_host, args, kwargs, are_pinned=are_pinned)
        if place in {"host", "kernel"} and written:
            # No kernel writes memory of the host, and the host writes none of the device.
            place = "host" if all(map(self.is_on_host, written)) else "kernel"
        if place == "kernel":
            scalars = itertools.compress(tensors, on_host)
            line = subject_frames() or NoLine.AUTOGRAD
            self._note_read(effects.name, HOST, scalars, line)
        return place

    def _touch(self, tensor: torch.Tensor, stream: str) -> RawRegion:
        """Return the place of a tensor, and note that a stream uses its storage."""
        if isinstance(tensor, DTensor):
            tensor = tensor._local_tensor  # noqa: SLF001  # `to_local` is an operator
        storage = self.storages.of(tensor, stream)
        if storage.stream is not stream:
            storage.touch(stream)
        offset, strides = int(tensor.storage_offset()), tensor.stride()
        return RawRegion(storage, offset, tensor.shape, strides, tensor.itemsize)

    def _note_results(self, result: Any, stream: str, made: list[RawRegion]) -> None:
        """Register the storages that an operator has allocated, and list them."""
        results = result if isinstance(result, (tuple, list)) else (result,)
        for tensor in results:
            if isinstance(tensor, (tuple, list)):
                self._note_results(tensor, stream, made)
            elif isinstance(tensor, torch.Tensor):
                known = self.storages.num_seen
                region = self._touch(tensor, stream)
                if region.storage.number >= known:
                    made.append(region)

    def _note_freed(self, storage: Storage) -> None:
        # The pool orders reuse on one stream. Memory of the host is given out again only after
        # the copies that use the memory.
        self.host_reader.end(storage.number)
        self._unwritten.fresh.pop(storage.number, None)
        if storage.is_shared and storage.number not in self._on_host:
            self._raw.append(RawFree(len(self.trace), self.moment, storage))


def _byte_region(raw: RawRegion) -> MemoryRegion:
    return strided_region(raw.storage.number, *raw[1:], raw.storage.first_byte)


def _origin(line: RawFrames | NoLine) -> Origin:
    """Return the innermost line, of the program rather than of FSDP2."""
    if isinstance(line, NoLine):
        return line
    own = (each for each in line if not is_torch_line(each[0].co_filename))
    return line_of(*next(own, line[0]))
