"""Run a function on every rank of a simulated world."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

# torch imports this on the first use of a process group, which takes seconds: within a
# rank's turn that would look like a hang, and interrupting an import breaks torch.
import torch._dynamo  # noqa: F401
import torch.distributed as dist

from syncverify.sim.communicator import BACKEND_NAME
from syncverify.sim.decisions import Decisions
from syncverify.sim.device_modules import virtual_device_modules
from syncverify.sim.meetings import SimulatedWorld
from syncverify.sim.process_group import SimulatedProcessGroup
from syncverify.sim.rank_recorder import RankRecorder
from syncverify.sim.scheduler import HANG_TIMEOUT_SECONDS, RankThread, Scheduler
from syncverify.sim.sharding_plans import remembered_plans
from syncverify.sim.stalls import Stall
from syncverify.sim.store import SimulatedStore
from syncverify.sim.streams import enter_rank
from syncverify.sim.threaded_world import thread_local_world


class SimulatedMachine:
    """One simulated run: its ranks, their traces, and the process groups between them.

    Args:
        num_ranks: World size.
        records_accesses: Whether to record what each operator reads and writes.
        decisions: Where timing decides; None takes option 0 everywhere.
        hang_timeout_seconds: How long a rank may work or wait without progress, each.
        recorders: One a rank, to record in another way than usual.
    """

    def __init__(
        self,
        num_ranks: int,
        *,
        records_accesses: bool = True,
        decisions: Decisions | None = None,
        hang_timeout_seconds: float = HANG_TIMEOUT_SECONDS,
        recorders: Sequence[RankRecorder] | None = None,
    ) -> None:
        self._num_ranks = num_ranks
        self.recorders = recorders or [
            RankRecorder(records_accesses=records_accesses) for _ in range(num_ranks)
        ]
        self._scheduler = Scheduler(
            num_ranks,
            progress=lambda: sum(len(recorder.events) for recorder in self.recorders),
            decisions=decisions,
            hang_timeout_seconds=hang_timeout_seconds,
        )
        for recorder in self.recorders:
            recorder.streams.scheduler = self._scheduler
        self.world = SimulatedWorld(self._scheduler, self.recorders)

    def run(
        self, program: Callable[[int], None]
    ) -> tuple[Sequence[RankThread], Stall | None]:
        """Run `program(rank)` on every rank, inside a default process group.

        Args:
            program: What a rank does; may use all of `torch.distributed`.

        Returns:
            How each rank ended, and why the run was ended early, if it was.
        """
        store = SimulatedStore(self._scheduler)

        def run_rank(rank: int) -> None:
            enter_rank(self.recorders[rank].streams)
            dist.init_process_group(
                BACKEND_NAME, rank=rank, world_size=self._num_ranks, store=store
            )
            try:
                program(rank)
            finally:
                self.recorders[rank].finish()
                dist.destroy_process_group()

        modules, cycles = virtual_device_modules(), no_collection_of_cycles()
        backend = _registered_backend(self.world)
        with thread_local_world(), backend, remembered_plans(), modules, cycles:
            return self._scheduler.run(run_rank)


@contextmanager
def no_collection_of_cycles() -> Iterator[None]:
    """Keep memory from being freed at moments that depend on what ran before."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def _registered_backend(world: SimulatedWorld) -> Iterator[None]:
    """Let torch build a world's groups for the length of a block."""

    def create(
        _store: dist.Store, rank: int, size: int, _timeout: timedelta
    ) -> dist.ProcessGroup:
        return SimulatedProcessGroup(world, rank, size)

    dist.Backend.register_backend(BACKEND_NAME, create, devices=["cpu", "cuda"])
    try:
        yield
    finally:
        # torch offers no way to forget a name; kept, it would keep the world alive, and
        # register_backend refuses a name that it knows.
        del dist.Backend._plugins[BACKEND_NAME.upper()]  # noqa: SLF001
