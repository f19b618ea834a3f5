"""torch's CUDA sanitizer, fed with the traces of a simulated GPU.

No other module touches `torch.cuda._sanitizer`. What is relied on are the handlers of
`EventHandler`, which torch calls from CUDA's allocator, streams and events, and from a
dispatch mode.
"""

from collections.abc import Iterable, Sequence

from torch.cuda._sanitizer import EventHandler

from studies.comparison.methods.method import Method
from studies.comparison.verdicts import SILENT, Verdict, alarm
from syncverify.judge.properties.judgement import Judgement
from syncverify.trace.records import (
    DEFAULT_STREAM,
    Access,
    CollectiveKey,
    CollectiveLaunch,
    CollectiveWait,
    HostWait,
    Mark,
    StorageFreed,
    StreamCreated,
    StreamWait,
    TraceRecord,
)
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.run import RankRun

# The distance between storages is so large that no address lies in two storages.
_STORAGE_BYTES = 1 << 40


class SanitizedRank(EventHandler):
    """The sanitizer of one rank, fed with the rank's trace.

    Attributes:
        races: Messages of the sanitizer about races, shortened.
    """

    def __init__(self) -> None:
        super().__init__()
        self.races: list[str] = []
        self._streams = {DEFAULT_STREAM: 0}
        self._storages: set[int] = set()
        self._collectives: dict[CollectiveKey, int] = {}
        self._num_own_events = 0

    def feed(self, events: Iterable[TraceRecord]) -> None:
        """Feed trace records, in host order."""
        for event in events:
            self._feed(event)

    def _feed(self, event: TraceRecord) -> None:
        match event:
            case StreamCreated():
                self._stream(event.stream)
            case Mark():
                self._record(event.mark, event.stream)
            case StreamWait():
                self._handle_event_wait(event.mark, self._stream(event.stream))
            case HostWait():
                self._handle_event_synchronization(event.mark)
            case Access():
                self._launch(event.operator, event.stream, event.reads, event.writes)
            case CollectiveLaunch():
                self._launch_collective(event)
            case CollectiveWait():
                self._wait_for_collective(event)
            case StorageFreed():
                self._free(event.storage)

    def _stream(self, name: str) -> int:
        if name not in self._streams:
            self._streams[name] = len(self._streams)
            self._handle_stream_creation(self._streams[name])
        return self._streams[name]

    def _record(self, mark: int, stream: str) -> None:
        self._handle_event_creation(mark)
        self._handle_event_record(mark, self._stream(stream))

    def _own_event(self, stream: str) -> int:
        """Record a CUDA event of the process group; marks of subjects count from 0 up."""
        self._num_own_events += 1
        self._record(-self._num_own_events, stream)
        return -self._num_own_events

    def _launch_collective(self, event: CollectiveLaunch) -> None:
        stream = event.communication_stream
        before = self._own_event(event.stream)
        self._handle_event_wait(before, self._stream(stream))
        self._launch(event.operation, stream, event.regions, event.written)
        self._collectives[event.key] = self._own_event(stream)

    def _wait_for_collective(self, event: CollectiveWait) -> None:
        done = self._collectives.get(event.key)
        if done is not None:
            self._handle_event_wait(done, self._stream(event.stream))

    def _launch(
        self,
        operator: str,
        stream: str,
        reads: Sequence[MemoryRegion],
        writes: Sequence[MemoryRegion],
    ) -> None:
        read, written = set(map(self._address, reads)), set(map(self._address, writes))
        errors = self._handle_kernel_launch(
            self._stream(stream),
            read_only=read - written,
            read_write=written,
            outputs=set(),  # only words of a report depend on it
            operator=operator,
            # Names of arguments, for reports; a trace has none.
            tensor_aliases={address: [] for address in read | written},
        )
        self.races += [
            f"data race: {operator} on {stream}, and {_previous(error)}"
            for error in errors
        ]

    def _address(self, region: MemoryRegion) -> int:
        """Return the address at which a tensor begins: the sanitizer's id of the tensor.

        A trace does not record allocations, so a storage is allocated at its first use.
        """
        if region.storage not in self._storages:
            self._storages.add(region.storage)
            self._handle_memory_allocation(_base(region.storage))
        return _base(region.storage) + region.start_byte

    def _free(self, storage: int) -> None:
        if storage in self._storages:
            self._storages.remove(storage)
            self._handle_memory_deallocation(_base(storage))


def _base(storage: int) -> int:
    return (storage + 1) * _STORAGE_BYTES


def _previous(error: object) -> str:
    previous = getattr(error, "previous_access", None)
    return f"{previous.operator} before it" if previous is not None else "another"


def sanitized(judgement: Judgement) -> Verdict:
    """Feed the trace of each rank to a sanitizer.

    Args:
        judgement: A run on `sim`.

    Returns:
        An alarm if a sanitizer met a race. Without a race, a reason where no trace has an
        access: the sanitizer had nothing to compare.
    """
    for rank, rank_run in enumerate(judgement.run.ranks):
        sanitizer = SanitizedRank()
        sanitizer.feed(rank_run.trace)
        if sanitizer.races:
            return alarm(f"rank {rank}: {sanitizer.races[0]}")
    if any(map(_has_accesses, judgement.run.ranks)):
        return SILENT
    return Verdict(alarmed=False, words="no memory that two streams share")


def _has_accesses(rank_run: RankRun) -> bool:
    # `sim` drops the accesses to memory that one stream alone uses.
    return any(isinstance(event, Access) for event in rank_run.trace)


CUDA_SANITIZER = Method(
    "cuda_sanitizer",
    "CUDA sanitizer",
    "sim, trained",
    sanitized,
)
