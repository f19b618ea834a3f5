"""One rank's handle of a simulated communicator: how calls are issued, meet and end.

It is late on purpose. A collective takes its inputs when it is issued and writes its
outputs only when the rank waits for it, as late as the API allows: a forgotten `wait()`
shows as a wrong value, and so does a write into a buffer that is in flight. Calls are
matched across ranks one by one; ranks that disagree end the run instead of exchanging
nonsense.
"""

# torch's stubs overload these methods for call styles that no caller uses here.
# mypy: disable-error-code="override, assignment"

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.errors import EnvironmentNotSupportedError
from syncverify.recorder import Recorder
from syncverify.sim.collectives import Call, Tensors, agree
from syncverify.sim.meetings import Meeting, Mismatch, SimulatedWorld
from syncverify.sim.moves import Access
from syncverify.sim.reductions import Factor, refused
from syncverify.sim.scheduler import RunEndedError
from syncverify.sim.stalls import Wait
from syncverify.sim.work import CoalescedWork, SimulatedWork
from syncverify.sourcelines import calling_line, is_called_by
from syncverify.trace import CollectiveLaunch

BACKEND_NAME = "simulated"


def not_simulated(name: str) -> EnvironmentNotSupportedError:
    """Refuse what a subject asked for, at its own line."""
    return EnvironmentNotSupportedError(
        f"the sim backend does not simulate {name}, issued at {calling_line()}"
    )


class SimulatedCommunicator(dist.ProcessGroup):
    """What all operations of a simulated process group share.

    Args:
        world: What all communicators of the run share.
        rank: Group rank that holds this handle.
        size: Number of ranks.
    """

    def __init__(self, world: SimulatedWorld, rank: int, size: int) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]  # an overload torch's stub lacks
        self.world = world
        self._size = size
        self._global_ranks: tuple[int, ...] | None = None
        self._group_name: str | None = None
        # Whether what is being issued gives a handle to wait for.
        self._is_async = True
        # How many collectives, or messages, a host has been told to be complete, by ranks.
        self.num_seen_complete: Counter[tuple[str, tuple[int, ...]]] = Counter()
        # Works issued since `_start_coalescing`; None outside of such a block.
        self._coalesced: list[SimulatedWork] | None = None

    @override
    def size(self) -> int:
        return self._size

    @property
    @override
    def group_name(self) -> str:
        """Name that all ranks of the communicator share."""
        assert self._group_name is not None, "torch gives it when it has made the group"
        return self._group_name

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

    def getBackendName(self) -> str:  # noqa: N802  # torch's name
        """Name the backend, as `torch.distributed.get_backend` reports it."""
        return BACKEND_NAME

    @override
    def shutdown(self) -> None:
        """Do nothing: there is no connection to close."""

    @override
    def __repr__(self) -> str:
        """Name the ranks."""
        return f"SimulatedProcessGroup(ranks={self._global_ranks}, rank={self.rank()})"

    # As NCCL's groups of calls: none of them starts before the block ends.

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

    def _is_batching(self) -> bool:
        # To groups that are not its own, torch passes the messages of a batch one by one.
        return self._coalesced is not None or is_called_by("batch_isend_irecv")

    def _issue(self, call: Call, peers: tuple[int, int] | None = None) -> SimulatedWork:
        """Issue a collective, or a message if there are `peers`, by group rank."""
        tensors = call.inputs or call.outputs
        if tensors and (name := refused(call.reduce_op, tensors[0].dtype)):
            raise not_simulated(name)
        ranks = self.global_ranks
        self.world.scheduler.count_step()
        launched = self.recorder.launch(
            call.operation,
            tensors,
            ranks=ranks if peers is None else (ranks[peers[0]], ranks[peers[1]]),
            reduce_op=call.reduce_op,
            source=calling_line(),
            communicator=self.group_name,
            root=None if call.root is None else ranks[call.root],
            written=call.written_by(self.rank()),
            communication_stream=self.recorder.communication_stream(
                self.group_name, ranks, is_async=self._is_async
            ),
            is_batched=None if peers is None else self._is_batching(),
        )
        meeting = self.world.meet(launched.place)
        seat = self.rank() if peers is None else int(call.operation == "recv")
        self.recorder.start(
            launched, lambda: self._arrive(meeting, seat, call, launched)
        )
        work = SimulatedWork(self, meeting, seat, call, launched)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _arrive(
        self, meeting: Meeting, seat: int, call: Call, launched: CollectiveLaunch
    ) -> None:
        self.world.scheduler.touch(meeting.name, Access.ARRIVE)
        with self.recorder.not_recording_accesses():
            taken = [_taken(tensor, call.factor) for tensor in call.inputs]
        meeting.calls[seat] = dataclasses.replace(
            call, inputs=taken, source=launched.source
        )
        for peer, other in enumerate(meeting.calls):
            if other is None or peer == seat:
                continue
            if not agree(meeting.calls, seat, peer):
                ranks = (meeting.ranks[peer], meeting.ranks[seat])
                lines = (
                    f"rank {ranks[0]}: {other}, at {other.source}",
                    f"rank {ranks[1]}: {call}, at {launched.source}",
                )
                self.world.mismatch = Mismatch(ranks, lines)
                raise RunEndedError

    def await_meeting(self, meeting: Meeting, launched: CollectiveLaunch) -> None:
        """Give the turn away until every rank has arrived.

        Args:
            meeting: What to wait for.
            launched: How to say so, if it never happens.
        """
        self.world.scheduler.block_until(
            lambda: meeting.is_complete, waiting_for(meeting, launched)
        )

    def poll_meeting(self, meeting: Meeting, launched: CollectiveLaunch) -> bool:
        """Let other ranks move on, then tell the host whether all have arrived.

        Args:
            meeting: What the rank asks about.
            launched: How to say so, if it asks for ever.

        Returns:
            Whether they have, as far as it shows.
        """
        return self.world.scheduler.poll(
            "is_completed",
            waiting_for(meeting, launched),
            lambda: meeting.is_complete,
        )


def waiting_for(meeting: Meeting, launched: CollectiveLaunch) -> Wait:
    """Say what a rank waits for that has issued a collective."""
    held = f" of {', '.join(launched.parameters)}" if launched.parameters else ""
    operation = (
        f"{launched.operation} #{launched.sequence}{held} over ranks "
        f"{list(launched.ranks)}, on stream {launched.stream}, at {launched.source}"
    )
    return Wait(operation, meeting.missing_ranks, meeting.name)


def listed(tensors: Any) -> Tensors:
    """Return one tensor or several as a list."""
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _taken(tensor: torch.Tensor, factor: Factor | None) -> torch.Tensor:
    copied = tensor.detach().clone()
    return copied if factor is None else copied.mul_(factor)
