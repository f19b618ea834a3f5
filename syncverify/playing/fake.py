"""The `fake` backend: torch's FakeProcessGroup, which moves no data, at any world size.

Ranks play one after the other. Each has its own thread, because torch caches the local
shapes of DTensor operators by thread and not by rank.

| judged | not judged |
|---|---|
| lifecycle and accumulation of one rank | values of reduced gradients |
| which collectives a rank issues, and when | results of collectives |
| whether the ranks of a communicator issue the same | |

A few ranks play a large world and stand for all others; see `coordinate_classes.py`. The
cost grows with the number of classes. Each other rank is one number: its entry in torch's
list of the ranks of a communicator.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from typing_extensions import override

from syncverify.late_imports import import_dynamo
from syncverify.playing.announcement import announce
from syncverify.playing.faults import threads_fault
from syncverify.playing.program.rank_program import play_part
from syncverify.playing.recording import CollectiveRecording
from syncverify.scenario.coordinate_classes import representatives
from syncverify.scenario.distribution import rank_tensor
from syncverify.scenario.layout import ranks_along
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec
from syncverify.sim.device.device_modules import host_streams
from syncverify.sim.device.virtual_streams import StreamQueues
from syncverify.sim.network.threaded_world import (
    has_groups,
    init_fake_process_group,
    thread_local_world,
)
from syncverify.sim.process_wide.rank_variables import rank_environment
from syncverify.sim.recording.threads import (
    refusing_threads_that_communicate,
    thread_identity,
)
from syncverify.sim.sharding_plans import obvious_plans
from syncverify.sim.turns.scheduler import Scheduler, own_rank
from syncverify.subjects.subject import Subject
from syncverify.trace.recorder import Recorder
from syncverify.trace.run import RankRun, Run

# Up to this size every rank plays: it takes a second, and a fault of any one rank is found.
MAX_RANKS_PLAYED_IN_FULL = 16


class _FakeRecorder(Recorder):
    """A recorder whose rank is a thread."""

    @override
    def as_rank(self) -> Callable[[], AbstractContextManager[None]]:
        return thread_identity()


class FakeBackend:
    """Plays each rank alone: its collectives return as if all peers took part."""

    name = "fake"

    def __init__(self) -> None:
        import_dynamo()

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        """Play a scenario, rank after rank, until one raises; gradients mean nothing."""
        announce(scenario)
        all_ranks = range(scenario.mesh.num_ranks)
        chosen: Sequence[int] = all_ranks
        if len(all_ranks) > MAX_RANKS_PLAYED_IN_FULL:
            chosen = representatives(scenario.mesh, scenario.parameters)
        recorders = [_FakeRecorder() for _ in chosen]
        streams_by_index = [StreamQueues() for _ in chosen]
        played = {rank: RankRun() for rank in chosen}

        def program(index: int) -> None:
            rank = chosen[index]
            _play_rank(scenario, subject, rank, played[rank], recorders[index])

        scheduler = Scheduler(
            len(chosen),
            progress=lambda: sum(len(r.trace) for r in recorders),
            backend=self.name,
        )

        def own_streams() -> StreamQueues | None:
            index = own_rank()  # None outside of all ranks
            return None if index is None else streams_by_index[index]

        world, own_threads = thread_local_world(), refusing_threads_that_communicate()
        streams = host_streams(own_streams)
        with world, own_threads, streams, obvious_plans(), rank_environment(has_groups):
            threads, stall = scheduler.run(program)
        # Indices of threads become the global ranks that they played.
        threads = [replace(thread, rank=chosen[thread.rank]) for thread in threads]
        if stall is not None:
            stall = replace(stall, ranks=tuple(chosen[index] for index in stall.ranks))
        absent = RankRun()
        return Run(
            self.name,
            tuple(played.get(rank, absent) for rank in all_ranks),
            threads_fault(threads, stall),
            carries_data=False,
        )

    def close(self) -> None:
        """Do nothing: no rank outlives its run."""


def _play_rank(
    scenario: Scenario, subject: Subject, rank: int, result: RankRun, recorder: Recorder
) -> None:
    init_fake_process_group(rank=rank, world_size=scenario.mesh.num_ranks)
    try:
        with CollectiveRecording(recorder):
            build = _own_mesh
            play_part(scenario, subject, rank, result, recorder, mesh_builder=build)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _own_mesh(spec: MeshSpec, device: torch.device) -> DeviceMesh:
    """Build a mesh with the process groups of this rank alone."""
    # `init_device_mesh` makes the groups of all ranks: 16,448 on a mesh of 8 x 8 x 1024.
    own = [
        _group_of(ranks_along(spec, (axis,), dist.get_rank()))
        for axis in range(len(spec.shape))
    ]
    return DeviceMesh.from_group(
        own if len(own) > 1 else own[0],
        device.type,
        mesh=rank_tensor(spec),
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
