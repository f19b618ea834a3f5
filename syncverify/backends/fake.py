"""The `fake` backend: torch's FakeProcessGroup, which moves no data, at any world size.

Ranks play one after the other, each on a thread of its own, because torch caches the
local shapes of DTensor operators per thread without asking for the rank. Values of
reduced gradients mean nothing here; what is judged is what a rank does by itself
(lifecycle, accumulation, which collectives it issues and when), and whether ranks that
would meet issue the same.

A large world is played by a few ranks that stand for all others; see
`coordinate_classes.py`. The cost grows with the number of classes. What is left for each
rank of the world is torch's own: a number in the list of a communicator's ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch._dynamo  # noqa: F401  # as in `sim/machine.py`: not within a rank's turn
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from syncverify.backends.faults import threads_fault
from syncverify.backends.recording import CollectiveRecording
from syncverify.coordinate_classes import representatives
from syncverify.layout import ranks_along
from syncverify.rank_program import play
from syncverify.recorder import Recorder
from syncverify.run import RankRun, Run
from syncverify.scenario import Scenario
from syncverify.sim.scheduler import RankThread, Scheduler
from syncverify.sim.sharding_plans import remembered_plans
from syncverify.sim.stalls import Stall
from syncverify.sim.threaded_world import init_fake_process_group, thread_local_world
from syncverify.subject import Subject

# Up to here every rank plays: that takes a second, and finds what is wrong with any one.
MAX_RANKS_PLAYED_IN_FULL = 16


class FakeBackend:
    """Plays each rank alone, as if its peers were there."""

    name = "fake"

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        """Play a scenario, rank after rank, until one raises.

        Args:
            scenario: What to play.
            subject: The synchronizer under test.

        Returns:
            What came out, without data.
        """
        num_ranks = scenario.mesh.num_ranks
        chosen = _chosen_ranks(scenario)
        recorders = [Recorder() for _ in chosen]
        played = {rank: RankRun() for rank in chosen}

        def program(index: int) -> None:
            rank = chosen[index]
            _play_rank(scenario, subject, rank, played[rank], recorders[index])

        scheduler = Scheduler(
            len(chosen), progress=lambda: sum(len(r.events) for r in recorders)
        )
        with thread_local_world(), remembered_plans():
            threads, stall = scheduler.run(program)
        absent = RankRun()
        return Run(
            self.name,
            tuple(played.get(rank, absent) for rank in range(num_ranks)),
            threads_fault(*_by_global_rank(chosen, threads, stall)),
            carries_data=False,
            representatives=None if len(chosen) == num_ranks else chosen,
        )

    def close(self) -> None:
        """Do nothing: no rank outlives its run."""


def _chosen_ranks(scenario: Scenario) -> tuple[int, ...]:
    if scenario.mesh.num_ranks <= MAX_RANKS_PLAYED_IN_FULL:
        return tuple(range(scenario.mesh.num_ranks))
    return representatives(scenario)


def _by_global_rank(
    chosen: Sequence[int], threads: Sequence[RankThread], stall: Stall | None
) -> tuple[list[RankThread], Stall | None]:
    """Say which ranks the scheduler's threads played."""
    named = [replace(thread, rank=chosen[thread.rank]) for thread in threads]
    if stall is None:
        return named, None
    return named, replace(stall, ranks=tuple(chosen[index] for index in stall.ranks))


def _play_rank(
    scenario: Scenario, subject: Subject, rank: int, result: RankRun, recorder: Recorder
) -> None:
    init_fake_process_group(rank=rank, world_size=scenario.mesh.num_ranks)
    try:
        with CollectiveRecording(recorder):
            play(
                scenario,
                subject,
                rank=rank,
                device=torch.device("cpu"),
                result=result,
                recorder=recorder,
                mesh_builder=_build_own_mesh,
            )
    finally:
        dist.destroy_process_group()


def _build_own_mesh(scenario: Scenario, device: torch.device) -> DeviceMesh:
    """Build the mesh with this rank's own process groups."""
    # `init_device_mesh` makes those of all ranks: 16,448 on a mesh of 8 x 8 x 1024.
    spec = scenario.mesh
    own = [
        _group_of(ranks_along(spec, (axis,), dist.get_rank()))
        for axis in range(len(spec.shape))
    ]
    ranks = torch.arange(spec.num_ranks, dtype=torch.int).reshape(spec.shape)
    return DeviceMesh.from_group(
        own if len(own) > 1 else own[0],
        device.type,
        mesh=ranks,
        mesh_dim_names=spec.axis_names,
    )


def _group_of(ranks: tuple[int, ...]) -> dist.ProcessGroup:
    if len(ranks) == dist.get_world_size():
        world = dist.group.WORLD
        assert world is not None
        return world
    group: dist.ProcessGroup = dist.new_group(
        list(ranks), use_local_synchronization=True
    )
    return group
