"""Run a function on every rank of a simulated world."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from syncverify.processes.silence import HANG_TIMEOUT_SECONDS
from syncverify.sim.device.device_modules import virtual_device_modules
from syncverify.sim.device.streams import use_streams
from syncverify.sim.device.torch_internals import forget_backend, keep_from_compilers
from syncverify.sim.network.communicator import BACKEND_NAME
from syncverify.sim.network.own_default_group import (
    make_default_group,
    own_default_groups,
)
from syncverify.sim.network.process_group import SimulatedProcessGroup
from syncverify.sim.network.rendezvous import SimulatedWorld
from syncverify.sim.network.store import SimulatedStore
from syncverify.sim.network.threaded_world import has_groups, thread_local_world
from syncverify.sim.per_rank.state import StateOfRanks
from syncverify.sim.process_wide.cycle_collection import no_collection_of_cycles
from syncverify.sim.process_wide.rank_variables import rank_environment
from syncverify.sim.recording.foreign_threads import (
    refusing_threads_that_communicate,
)
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.sim.sharding_plans import obvious_plans
from syncverify.sim.turns.decisions import Decisions
from syncverify.sim.turns.scheduler import (
    MAX_STEPS_PER_RANK,
    EndedRanks,
    Scheduler,
)


class SimulatedMachine:
    """One simulated run: its ranks, their traces, and the process groups between them.

    Args:
        num_ranks: World size.
        decisions: Decisions in place of timing; None takes option 0 everywhere.
        hang_timeout_seconds: Processor time, and wall time, that a rank may spend without
            progress.
        recorders: One recorder a rank; None for the usual ones.
        completes_in_order: Whether each communicator completes its collectives in order.
        max_steps_per_rank: Steps that a run may take, by rank; see Note [The step bound].
        passes_stalls: Whether hosts go on in waits of streams once no rank can run, without
            values.

    Attributes:
        scheduler: Hands out the turns.
        world: State that the process groups share.
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
        """Run `program(rank)` on every rank, inside a default process group.

        Args:
            program: Program of a rank; may use all of `torch.distributed`.

        Returns:
            The threads and the stall at the end of the run.
        """
        store = SimulatedStore(self.scheduler)

        def make_group(rank: int, store: dist.Store) -> None:
            make_default_group(BACKEND_NAME, rank, self._num_ranks, store)

        def run_rank(rank: int) -> None:
            use_streams(self.recorders[rank].streams)
            torch.get_num_threads()  # gives a new thread what `set_num_threads` was told
            make_group(rank, store)
            try:
                program(rank)
            finally:
                self.recorders[rank].finish()
                if dist.is_initialized():
                    dist.destroy_process_group()

        for package in ("syncverify.sim", "syncverify.trace"):
            keep_from_compilers(package)
        shows = any(recorder.streams.seen for recorder in self.recorders)
        modules = virtual_device_modules(shows_device=shows)
        cycles = no_collection_of_cycles()
        backend = registered_backend(self.world)
        threads = refusing_threads_that_communicate()
        world, plans = thread_local_world(), obvious_plans()
        variables = rank_environment(has_groups)
        with (
            world, backend, plans, modules, cycles, threads, variables, self._state.apart(),
            own_default_groups(make_group, store, self.world),
        ):  # fmt: skip
            return self.scheduler.run(run_rank)


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
