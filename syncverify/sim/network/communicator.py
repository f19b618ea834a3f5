"""One rank's handle of a simulated communicator: it issues calls and matches them.

A collective is late on purpose. It reads its inputs when it is issued, and writes its
outputs only when the rank waits for it: as late as the API allows. So a forgotten `wait()`
shows as a wrong value, and so does a write to a buffer in flight. Calls are matched across
ranks one by one. Ranks whose calls do not fit end the run; no data is exchanged.
"""

# torch's stubs overload these methods for call styles that no caller uses here.
# mypy: disable-error-code="override, assignment"

import dataclasses
import sys
from collections import Counter
from types import FrameType
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.errors import RunEndedError
from syncverify.scenario.settings import NCCL_NAMES
from syncverify.sim.device.nccl_names import (
    Promises,
    SeenBackends,
    is_of_nccl,
    promises_of,
    uses_nccl2,
)
from syncverify.sim.device.streams import own_streams
from syncverify.sim.network.collectives import (
    CollectiveCall,
    Factor,
    agree,
    refused,
    taken,
)
from syncverify.sim.network.library_checks import Caller, as_moved_by_gloo, check_call
from syncverify.sim.network.rendezvous import Mismatch, Rendezvous, SimulatedWorld
from syncverify.sim.network.work import CoalescedWork, DroppableHandle, SimulatedWork
from syncverify.sim.turns.own_errors import noting_own_errors
from syncverify.sim.turns.refusals import refuse
from syncverify.sim.turns.scheduler import own_rank
from syncverify.sim.turns.turn_log import AccessKind
from syncverify.trace.recorder import Recorder
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.source_files import is_harness_line
from syncverify.trace.stacks import is_called_by

BACKEND_NAME = "simulated"
_NAMELESS = "undefined"  # torch's word for a group without a description
# Functions of torch that choose a device of a group. All other functions see none, since they
# would look for torch's own backend of the device.
_CHOOSE_DEVICE = ("async_save", "_broadcast_tensors")
_NO_TENSOR = "There were no tensor arguments to this function (e.g., you passed an empty list of Tensors)"


@noting_own_errors("_issue")
class SimulatedCommunicator(dist.ProcessGroup):
    """The base of a simulated process group: how each call is issued and matched.

    `rank` is the group rank that holds this handle.
    """

    def __init__(self, world: SimulatedWorld, rank: int, size: int) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]  # an overload torch's stub lacks
        self.world = world
        self._size = size
        self._global_ranks: tuple[int, ...] | None = None
        self._group_name: str | None = None
        self._world_number = world.num_default_groups[own_rank()]
        # Whether the caller of the present operation gets a handle to wait for.
        self._is_async = True
        # By communicator and ranks: number of collectives that the host knows to be complete.
        self.num_seen_complete: Counter[tuple[str, tuple[int, ...]]] = Counter()
        # Works issued since `_start_coalescing`; None outside of such a block.
        self._coalesced: list[SimulatedWork] | None = None
        # Works in the order of their calls, where they complete in order.
        self._in_order: list[SimulatedWork] = []

    @override
    def size(self) -> int:
        return self._size

    @property
    @override
    def group_name(self) -> str:
        """Name that all ranks of the communicator share."""
        assert self._group_name is not None, "torch gives it when it has made the group"
        return self._group_name

    @property
    def communicator(self) -> str:
        """Name of the communicator; torch gives names of groups again in a later world."""
        number = self._world_number
        return f"{self.group_name} of world {number}" if number else self.group_name

    @override
    def _set_group_name(self, name: str) -> None:
        self._group_name = name

    @property
    def global_ranks(self) -> tuple[int, ...]:
        """Global ranks of the communicator, in group order."""
        if self._global_ranks is None:  # torch learns them after it made the group
            self._global_ranks = tuple(dist.get_process_group_ranks(self))
        return self._global_ranks

    @property
    def recorder(self) -> Recorder:
        """Recorder of the rank that holds this handle."""
        return self.world.recorders[self.global_ranks[self.rank()]]

    @property
    def promises(self) -> Promises:
        """The promises of the library that the subject sees."""
        return promises_of(self._told_backend())

    @property
    def is_of_nccl(self) -> bool:
        """Tell whether the subject sees a communicator of NCCL."""
        return is_of_nccl(self._told_backend())

    @property
    def _backends(self) -> SeenBackends:
        streams = own_streams()
        return SeenBackends() if streams is None else streams.backends

    def _told_backend(self) -> str:
        return self._backends.of(self.group_name)

    @property
    @override
    def _device_types(self) -> list[torch.device]:
        """Devices whose memory the group moves, as torch asks for them."""
        streams = own_streams()
        if streams is None or not any(map(is_called_by, _CHOOSE_DEVICE)):
            return []
        return streams.backends.devices_of(self.group_name)

    def getBackendName(self) -> str:  # noqa: N802  # torch's name
        """Name the backend, as `torch.distributed.get_backend` reports it."""
        return BACKEND_NAME

    @override
    def shutdown(self) -> None:
        """Let later collectives raise, as on NCCL; on gloo they run after the shutdown as well."""
        if self.is_of_nccl:
            self._issue = _of_a_destroyed_group

    @override
    def __repr__(self) -> str:
        return f"SimulatedProcessGroup(ranks={self._global_ranks}, rank={self.rank()})"

    # As in NCCL's groups of calls, no call of a block starts before the block ends.

    @override
    def _start_coalescing(self, _device: torch.device) -> None:
        self._coalesced = []

    @override
    def _end_coalescing(self, _device: torch.device) -> dist.Work:
        works, self._coalesced = self._coalesced or [], None
        return CoalescedWork(works)

    def is_held_back(self, work: SimulatedWork) -> bool:
        """Tell whether a call belongs to a block that has not ended yet."""
        return self._coalesced is not None and work in self._coalesced

    def take_completed_before(self, work: SimulatedWork) -> list[SimulatedWork]:
        """Return the works that complete before one that completes; all leave the queue.

        NCCL runs the collectives of a communicator in order, on each of its streams.
        """
        if work not in self._in_order:
            return []
        position = self._in_order.index(work)
        earlier, later = self._in_order[:position], self._in_order[position + 1 :]
        others = [each for each in earlier if each.runs_on != work.runs_on]
        self._in_order = [*others, *later]
        return [each for each in earlier if each.runs_on == work.runs_on]

    def _settle_what_is_sent_on(self, call: CollectiveCall, stream: str) -> None:
        """Await the results of earlier collectives on a stream that a call has as its input.

        In order, the earlier one has written them when the later one reads; no host waits for
        that on NCCL, and no stream is ordered by it here.
        """
        for earlier in tuple(self._in_order):
            is_first = earlier.runs_on == stream and not self.is_held_back(earlier)
            if is_first and earlier.writes_any_of(call.inputs):
                earlier.settle_in_turn()

    def _as_taken(self, call: CollectiveCall) -> CollectiveCall:
        """Return a call with the memory that the library moves; raise what torch refuses."""
        tensors = call.inputs or call.outputs
        if not tensors and call.operation != "barrier":
            raise NotImplementedError(_NO_TENSOR)
        if tensors and tensors[0].layout is not torch.strided:
            refuse("collectives of sparse tensors")
        if self._is_moved_by_nccl(call):
            caller = Caller(self.rank(), self._size, uses_nccl2(self._told_backend()))
            check_call(call, caller)
            return call
        if tensors and (name := refused(call.reduce_op, tensors[0].dtype)):
            refuse(name)
        return as_moved_by_gloo(call)

    def _is_moved_by_nccl(self, call: CollectiveCall) -> bool:
        """Tell whether NCCL moves the tensors; some groups have another library for the CPU."""
        if not self.is_of_nccl:
            return False
        streams = own_streams()
        seen = None if streams is None else streams.seen
        tensors = (*call.inputs, *call.outputs)
        return seen is None or all(seen.of(each).type != "cpu" for each in tensors)

    def _issue(
        self, call: CollectiveCall, peers: tuple[int, int] | None = None, tag: int = 0
    ) -> dist.Work:
        """Issue a collective, or a message if there are `peers`, by group rank."""
        call = self._as_taken(call)
        tensors = call.inputs or call.outputs
        for rank in peers or (call.root or 0,):
            if rank not in range(self._size):
                raise ValueError(f"invalid rank {rank} of a group of {self._size}")
        self.world.scheduler.count_step()
        ranks = self.global_ranks
        # torch knows no batches of this backend: it passes their messages one by one.
        is_batched = None
        if peers is not None:
            in_block = self._coalesced is not None
            is_batched = in_block or is_called_by("batch_isend_irecv")
        stream = self._stream_of(peers if is_batched is False else None)
        self._settle_what_is_sent_on(call, stream)
        written = call.written_by(self.rank())
        streams = own_streams()
        if streams and streams.seen and self._told_backend() in NCCL_NAMES:
            streams.seen.check_device((*tensors, *written))
        launched = self.recorder.launch(
            call.operation,
            tensors,
            ranks=ranks if peers is None else (ranks[peers[0]], ranks[peers[1]]),
            reduce_op=call.reduce_op,
            communicator=self.communicator,
            group_name=self.group_desc.removeprefix(_NAMELESS),
            root=None if call.root is None else ranks[call.root],
            written=written,
            communication_stream=stream,
            is_batched=is_batched,
            tag=tag,
            is_told_by_tag=self._library == "gloo",
            is_functional=self._is_async and _is_of_functional_collective(),
            meets_on_host=call.operation == "barrier" and not self.is_of_nccl,
        )
        self._require_own_name(launched)
        rendezvous = self.world.rendezvous(launched.key)
        rendezvous.fails |= self.world.fails(launched)
        seat = self.rank() if peers is None else int(call.operation == "recv")
        self.recorder.start(
            launched, lambda: self._arrive(rendezvous, seat, call, launched)
        )
        work = SimulatedWork(self, rendezvous, seat, call, launched)
        if self.world.completes_in_order:
            self._in_order.append(work)
        if self._coalesced is not None:
            self._coalesced.append(work)
            return work
        if self.world.is_prompt and peers is None:  # messages may be issued in a circle
            work.settle_in_turn()
        return work if self.promises.keeps_results else DroppableHandle(work)

    def _require_own_name(self, launched: CollectiveLaunch) -> None:
        """End the run if two groups of ranks made their communicators under one name.

        torch counts the calls of `new_group` on each rank, and names a group by that number.
        Where only members call it, groups have one name: they meet at one place of the store.
        Real ranks then hang, connect to ranks of the other group, or are lucky.

        Raises:
            RunEndedError: Another group has the name.
        """
        ranks, rank = self.global_ranks, self.global_ranks[self.rank()]
        first = self.world.groups.setdefault(
            self.communicator, (ranks, rank, launched.source)
        )
        if first[0] == ranks:
            return
        lines = tuple(
            f"rank {one}: new_group() number {self.group_name} has the ranks {list(members)}, "
            f"used at {source}"
            for members, one, source in (first, (ranks, rank, launched.source))
        )
        self.world.mismatch = Mismatch(
            (first[1], rank), (lines[0], lines[1]), (first[2], launched.source)
        )
        raise RunEndedError

    def _stream_of(self, pair: tuple[int, int] | None) -> str:
        """Return the stream on which a call runs; a message may have one of its pair's own.

        Source:
            `getKeySendRecv` in torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp;
            torch/csrc/distributed/c10d/lazy/LazyBackend.hpp.
        """
        name, ranks = self.communicator, self.global_ranks
        if pair is not None and not self.promises.orders_messages:
            ranks = tuple(ranks[each] for each in sorted(pair))
            name = f"{name}, messages of ranks {list(ranks)}"
        return self.recorder.communication_stream(
            name, ranks, is_async=self._is_async, library=self._library
        )

    @property
    def _library(self) -> str:
        """Name of the group's library: NCCL's, unless the program has another one."""
        return self._backends.library_of(self.group_name)

    def _arrive(
        self,
        rendezvous: Rendezvous,
        seat: int,
        call: CollectiveCall,
        launched: CollectiveLaunch,
    ) -> None:
        self.world.scheduler.note_access(rendezvous.name, AccessKind.ARRIVE)
        # Inputs are copied now, so a later write to them changes no result: the copy is the
        # earliest read that a device could make. `SimulatedWork` writes as late as it can.
        with self.recorder.not_recording_accesses():
            copies = [_scaled(taken(each), call.factor) for each in call.inputs]
        issued = dataclasses.replace(call, inputs=copies, source=launched.source)
        self.world.arrive(launched.key, seat, issued)
        for peer, other in enumerate(rendezvous.calls):
            if other is None or peer == seat:
                continue
            if not agree(rendezvous.calls, seat, peer):
                ranks = (rendezvous.ranks[peer], rendezvous.ranks[seat])
                lines = (
                    f"rank {ranks[0]}: {other}, at {other.source}",
                    f"rank {ranks[1]}: {call}, at {launched.source}",
                )
                self.world.mismatch = Mismatch(
                    ranks, lines, (other.source, launched.source)
                )
                raise RunEndedError


def _of_a_destroyed_group(*_: Any, **__: Any) -> NoReturn:
    raise dist.DistBackendError(
        "NCCL communicator was aborted: the group of this collective was destroyed before"
    )


def leave_groups() -> None:
    """Let all collectives of this process raise: it was forked, and CUDA does not follow."""
    SimulatedCommunicator._issue = _in_a_forked_process  # noqa: SLF001  # for good


def _in_a_forked_process(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError(
        "CUDA error: initialization error: a process that a rank has forked has no group"
    )


def _is_of_functional_collective() -> bool:
    """Tell whether an operator of a functional collective, which returns no handle, calls."""
    frame: FrameType | None = sys._getframe(1)  # documented by Python
    while frame is not None and is_harness_line(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None or frame.f_globals.get("__name__") != "torch._ops":
        return False
    return str(frame.f_locals.get("self")).startswith("_c10d_functional")


def _scaled(copied: torch.Tensor, factor: Factor | None) -> torch.Tensor:
    return copied if factor is None else copied.mul_(factor)
