"""A process group whose ranks are threads that take turns.

Unlike torch's own in-process groups, it is late on purpose. A collective takes its
inputs when it is issued and writes its outputs only when the rank waits for it, as late
as the API allows: a forgotten `wait()` shows as a wrong value, and so does a write into
a buffer that is in flight. Calls are matched across ranks one by one; ranks that
disagree end the run instead of exchanging nonsense.
"""

# torch's stubs overload these methods for call styles that no caller uses here.
# mypy: disable-error-code="override, assignment"

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.errors import EnvironmentNotSupportedError
from syncverify.sim.collectives import (
    SUPPORTED_REDUCTIONS,
    Call,
    Tensors,
    reduce_op_name,
)
from syncverify.sim.meetings import Meeting, Mismatch, SimulatedWorld
from syncverify.sim.moves import Access
from syncverify.sim.scheduler import RunEndedError, Wait
from syncverify.sim.work import SimulatedWork
from syncverify.sourcelines import calling_line
from syncverify.trace import CollectiveLaunch, Recorder

BACKEND_NAME = "simulated"


def _not_simulated(name: str) -> EnvironmentNotSupportedError:
    return EnvironmentNotSupportedError(
        f"the sim backend does not simulate {name}, issued at {calling_line()}"
    )


def _refusal(name: str) -> Any:
    """Make a method that says that the operation is not simulated."""

    def refuse(_group: SimulatedProcessGroup, *_given: Any, **_named: Any) -> None:
        raise _not_simulated(name)

    return refuse


class SimulatedProcessGroup(dist.ProcessGroup):
    """One rank's handle of a simulated communicator."""

    def __init__(self, world: SimulatedWorld, rank: int, size: int) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]  # an overload torch's stub lacks
        self.world = world
        self._size = size
        self._issued = 0
        self.num_seen_complete = 0  # of its collectives, by a host that asked
        self._global_ranks: tuple[int, ...] | None = None
        self._group_name: str | None = None

    @override
    def size(self) -> int:
        return self._size

    @property
    @override
    def group_name(self) -> str:
        """Name that all ranks of the communicator share."""
        if self._group_name is None:  # torch gives it after it made the group
            # Where torch's own threaded group finds it.
            self._group_name = dist.distributed_c10d._world.pg_names[self]  # noqa: SLF001
        return self._group_name

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

    # Names and argument orders below are torch's: Python and C++ callers rely on them.

    @override
    def allreduce(self, tensors: Any, opts: Any = None) -> dist.Work:
        tensors = _listed(tensors)
        return self._issue(Call("all_reduce", reduce_op_name(opts), tensors, tensors))

    @override
    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> dist.Work:
        return self.allreduce(tensors, opts)

    @override
    def reduce(self, tensors: Any, opts: Any = None) -> dist.Work:
        tensors = _listed(tensors)
        return self._issue(
            Call("reduce", reduce_op_name(opts), tensors, tensors, opts.rootRank)
        )

    @override
    def broadcast(self, tensors: Any, opts: Any = None) -> dist.Work:
        tensors = _listed(tensors)
        return self._issue(Call("broadcast", "", tensors, tensors, opts.rootRank))

    @override
    def allgather(
        self, output_tensors: Any, input_tensors: Any, opts: Any = None
    ) -> dist.Work:
        return self._issue(
            Call("all_gather", "", _listed(input_tensors), output_tensors[0])
        )

    @override
    def all_gather_single(self, output: Any, input: Any, opts: Any = None) -> dist.Work:
        return self._issue(Call("all_gather_single", "", [input], [output]))

    _allgather_base = all_gather_single  # its name before torch 2.13

    @override
    def all_gather_single_coalesced(
        self, outputs: Any, inputs: Any, opts: Any = None
    ) -> dist.Work:
        """Gather several tensors; torch's functional collectives issue no other."""
        return self._issue(
            Call("all_gather_single", "", _listed(inputs), _listed(outputs))
        )

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    @override
    def gather(
        self, output_tensors: Any, input_tensors: Any, opts: Any = None
    ) -> dist.Work:
        outputs = output_tensors[0] if output_tensors else []
        return self._issue(
            Call("gather", "", _listed(input_tensors), outputs, opts.rootRank)
        )

    @override
    def scatter(
        self, output_tensors: Any, input_tensors: Any, opts: Any = None
    ) -> dist.Work:
        inputs = input_tensors[0] if input_tensors else []
        return self._issue(
            Call("scatter", "", inputs, _listed(output_tensors), opts.rootRank)
        )

    @override
    def reduce_scatter(
        self, output_tensors: Any, input_tensors: Any, opts: Any = None
    ) -> dist.Work:
        return self._issue(
            Call(
                "reduce_scatter",
                reduce_op_name(opts),
                input_tensors[0],
                _listed(output_tensors),
            )
        )

    @override
    def reduce_scatter_single(
        self, output: Any, input: Any, opts: Any = None
    ) -> dist.Work:
        return self._issue(
            Call("reduce_scatter_single", reduce_op_name(opts), [input], [output])
        )

    _reduce_scatter_base = reduce_scatter_single  # its name before torch 2.13

    @override
    def reduce_scatter_single_coalesced(
        self, outputs: Any, inputs: Any, opts: Any = None
    ) -> dist.Work:
        """Reduce and scatter several tensors, for functional collectives likewise."""
        return self._issue(
            Call(
                "reduce_scatter_single",
                reduce_op_name(opts),
                _listed(inputs),
                _listed(outputs),
            )
        )

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    @override
    def barrier(self, opts: Any = None) -> dist.Work:
        return self._issue(Call("barrier", "", [], []))

    # Left to torch, these would raise an error that reads like the subject's own.
    alltoall: Any = _refusal("all_to_all")
    all_to_all_single = alltoall_base = _refusal("all_to_all_single")
    allgather_coalesced: Any = _refusal("all_gather_coalesced")
    send: Any = _refusal("send")
    recv = recv_anysource = _refusal("recv")
    monitored_barrier: Any = _refusal("monitored_barrier")

    def _issue(self, call: Call) -> SimulatedWork:
        if call.reduce_op not in {"", *SUPPORTED_REDUCTIONS}:
            raise _not_simulated(call.reduce_op)
        launched = self.recorder.launch(
            call.operation,
            call.inputs or call.outputs,
            ranks=self.global_ranks,
            reduce_op=call.reduce_op,
            source=calling_line(),
        )
        meeting = self.world.meet(self.group_name, self._size, self._issued)
        self._issued += 1
        self._arrive(meeting, call, launched)
        return SimulatedWork(self, meeting, launched)

    def _arrive(self, meeting: Meeting, call: Call, launched: CollectiveLaunch) -> None:
        self.world.scheduler.touch(meeting.name, Access.ARRIVE)
        inputs: Tensors = [tensor.detach().clone() for tensor in call.inputs]
        meeting.calls[self.rank()] = Call(
            call.operation,
            call.reduce_op,
            inputs,
            call.outputs,
            call.root,
            launched.source,
        )
        for peer, other in enumerate(meeting.calls):
            if other is not None and other.agreement() != call.agreement():
                ranks = (self.global_ranks[peer], self.global_ranks[self.rank()])
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

        def missing() -> tuple[int, ...]:
            ranks = self.global_ranks
            return tuple(
                ranks[i] for i, call in enumerate(meeting.calls) if call is None
            )

        operation = f"{launched.operation} #{launched.sequence} over ranks {list(launched.ranks)}, at {launched.source}"
        self.world.scheduler.block_until(
            lambda: meeting.is_complete, Wait(operation, missing, meeting.name)
        )


def _listed(tensors: Any) -> Tensors:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
