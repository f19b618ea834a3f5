"""Run a function on every rank of a simulated world."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from syncverify.processes.silence import HANG_TIMEOUT_SECONDS
from syncverify.sim.device.device_modules import virtual_device_modules
from syncverify.sim.device.streams import use_streams
from syncverify.sim.device.torch_internals import forget_backend, keep_from_compilers
from syncverify.sim.network import threaded_world
from syncverify.sim.network.communicator import BACKEND_NAME
from syncverify.sim.network.process_group import SimulatedProcessGroup
from syncverify.sim.network.rendezvous import SimulatedWorld
from syncverify.sim.network.store import SimulatedStore
from syncverify.sim.per_rank.state import StateOfRanks
from syncverify.sim.process_wide.rank_variables import rank_environment
from syncverify.sim.process_wide.settings import no_collection_of_cycles
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.sim.recording.threads import refusing_threads_that_communicate
from syncverify.sim.sharding_plans import obvious_plans
from syncverify.sim.turns.decisions import Decisions
from syncverify.sim.turns.scheduler import MAX_STEPS_PER_RANK, EndedRanks, Scheduler


class SimulatedMachine:
    """One simulated run: its ranks, their traces, and the process groups between them.

    `recorders` has one recorder a rank; None is the usual ones. Collectives of a communicator may
    complete in order. The other arguments are those of the `Scheduler`.
    """

    def __init__(
        self,
        num_ranks: int,
        *,
        decisions: Decisions | None = None,
        hang_timeout_seconds: float = HANG_TIMEOUT_SECONDS,
        recorders: Sequence[RankRecorder] | None = None,
        completes_in_order: bool = False,
        max_steps_per_rank: int = MAX_STEPS_PER_RANK,
        passes_stalls: bool = False,
    ) -> None:
        self._num_ranks = num_ranks
        self.recorders = recorders or [RankRecorder() for _ in range(num_ranks)]
        self._state = StateOfRanks()
        self.scheduler = Scheduler(
            num_ranks,
            on_turn=self._state.turn_to,
            progress=lambda: sum(len(recorder.trace) for recorder in self.recorders),
            decisions=decisions,
            hang_timeout_seconds=hang_timeout_seconds,
            max_steps_per_rank=max_steps_per_rank,
            passes_stalls=passes_stalls,
        )
        for recorder in self.recorders:
            recorder.streams.scheduler = self.scheduler
        self.world = SimulatedWorld(
            self.scheduler, self.recorders, completes_in_order=completes_in_order
        )

    def run(self, program: Callable[[int], None]) -> EndedRanks:
        """Return the ranks once `program(rank)` has run on each, inside a default process group."""
        store = SimulatedStore(self.scheduler)

        def run_rank(rank: int) -> None:
            use_streams(self.recorders[rank].streams)
            torch.get_num_threads()  # gives a new thread what `set_num_threads` was told
            threaded_world.make_default_group(rank, self._num_ranks, store)
            try:
                program(rank)
            finally:
                self.recorders[rank].finish()
                if dist.is_initialized():
                    dist.destroy_process_group()

        with (
            threaded_world.thread_local_world(),
            simulated_torch(self.world, store),
            obvious_plans(),
            rank_environment(threaded_world.has_groups),
            self._state.apart(),
        ):
            return self.scheduler.run(run_rank)


@contextmanager
def simulated_torch(world: SimulatedWorld, store: dist.Store) -> Iterator[None]:
    """Let torch act on the ranks of a world as on real ones, for the length of a block."""
    for package in ("syncverify.sim", "syncverify.trace"):
        keep_from_compilers(package)
    recorders: Any = world.recorders
    with (
        registered_backend(world),
        virtual_device_modules(shows_device=any(r.streams.seen for r in recorders)),
        no_collection_of_cycles(),
        refusing_threads_that_communicate(),
        threaded_world.own_default_groups(store, world),
    ):
        yield


@contextmanager
def registered_backend(world: SimulatedWorld) -> Iterator[None]:
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
        forget_backend(BACKEND_NAME)
