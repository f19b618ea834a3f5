"""The mechanisms of torch that fake and real process groups stand on, tried before a search.

`Note [No verdict on an unknown torch]` says why. They are played in this process, since workers
run the same torch: in a group whose other rank is absent, and in a group of one rank.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from syncverify.playing.program.leftovers import num_groups
from syncverify.playing.rank_groups import (
    KeptTransports,
    end_groups,
    has_all_ends,
    use_loopback,
)
from syncverify.playing.recording import CollectiveRecording
from syncverify.scenario.settings import NCCL_NAMES
from syncverify.sim.known_torch import Mechanism, require_known_torch
from syncverify.sim.network.threaded_world import (
    init_fake_process_group,
    thread_local_world,
)
from syncverify.trace.recorder import Recorder
from syncverify.trace.records import CollectiveLaunch, TraceRecord

_BOTH: Final = (0, 1)
# Operation, reduction, ranks and root of each collective of `_issue`.
_LAUNCHES: Final = [
    ("all_reduce", "SUM", _BOTH, None),
    ("all_gather", "", _BOTH, None),
    ("all_gather_single", "", _BOTH, None),
    ("reduce_scatter", "MAX", _BOTH, None),
    ("reduce_scatter_single", "SUM", _BOTH, None),
    ("broadcast", "", _BOTH, 1),
    ("reduce", "SUM", _BOTH, 1),
    ("all_to_all_single", "", _BOTH, None),
    ("barrier", "", _BOTH, None),
    ("send", "", _BOTH, None),
    ("recv", "", _BOTH[::-1], None),
    ("all_reduce", "SUM", _BOTH, None),
    ("all_gather_single", "", _BOTH, None),
    ("reduce_scatter_single", "SUM", _BOTH, None),
]


def require_known_groups(backend: str) -> None:
    """Try what a backend relies on beyond what simulated ranks rely on."""
    if backend not in {"sim", "streams"}:
        require_known_torch(mechanisms_of(backend))


def mechanisms_of(backend: str) -> tuple[Mechanism, ...]:
    """Return the mechanisms of a backend that plays on groups of torch."""
    if backend == "fake":
        return (RECORD,)
    of_nccl = backend in NCCL_NAMES and dist.is_nccl_available()
    return (RECORD, ENDS, ENDS_OF_NCCL) if of_nccl else (RECORD, ENDS)


def _recorded_collectives() -> bool:
    # A thread of its own, whose world ends with it where torch cannot end the group.
    with thread_local_world(), ThreadPoolExecutor(1) as thread:
        trace = thread.submit(_trace_of_a_fake_rank).result()
    return [
        (each.operation, each.reduce_op, each.ranks, each.root)
        for each in trace
        if isinstance(each, CollectiveLaunch)
    ] == _LAUNCHES


def _trace_of_a_fake_rank() -> list[TraceRecord]:
    recorder = Recorder()
    init_fake_process_group(rank=0, world_size=len(_BOTH))
    with CollectiveRecording(recorder):
        _issue()
    dist.destroy_process_group()
    return recorder.trace


def _issue() -> None:
    """Issue collectives as rank 0, and let DTensor issue those of its redistributions."""
    one, both = torch.ones(2), torch.ones(4)
    parts = [torch.ones(2) for _ in _BOTH]
    dist.all_reduce(one, async_op=True).wait()
    dist.all_gather(parts, one)
    dist.all_gather_into_tensor(both, one)
    dist.reduce_scatter(one, parts, op=dist.ReduceOp.MAX)
    dist.reduce_scatter_tensor(one, both)
    dist.broadcast(one, src=1)
    dist.reduce(one, dst=1)
    dist.all_to_all_single(both, both.clone())
    dist.barrier()
    messages = [(dist.isend, one), (dist.irecv, parts[0])]
    dist.batch_isend_irecv([dist.P2POp(*each, peer=1) for each in messages])
    group = dist.group.WORLD
    assert group is not None
    mesh = DeviceMesh.from_group(group, "cpu", mesh=torch.arange(len(_BOTH)))
    partial = DTensor.from_local(torch.ones(4), mesh, [Partial()])
    whole = partial.redistribute(mesh, [Replicate()])
    shard = whole.redistribute(mesh, [Shard(0)])
    shard.redistribute(mesh, [Replicate()]).to_local().sum()
    partial.redistribute(mesh, [Shard(0)]).to_local().sum()


def _ends_of_groups() -> bool:
    kept = KeptTransports()
    with patch.dict(os.environ):
        use_loopback()
        is_first_right = _plays_and_ends(kept, is_clean=True)
        of_first = [*map(id, kept.transports())]
        is_second_right = _plays_and_ends(kept, is_clean=False)
    # The second group has the transports of the first one, and adds none. There are several
    # where torch sees a GPU: a mesh on gloo then makes a group beside the default one.
    has_reused = len(of_first) > 0 and of_first == [*map(id, kept.transports())]
    kept.drop()
    return is_first_right and is_second_right and has_reused


def _plays_and_ends(kept: KeptTransports, *, is_clean: bool) -> bool:
    """Play a collective in a group of one rank, end the group, and tell whether all is gone."""
    tensor = torch.full((2,), 3.0)
    with kept.in_use():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        mesh = init_device_mesh("cpu", (1,))
        dist.all_reduce(tensor, group=mesh.get_group())
        was_there = num_groups()
        end_groups(is_clean=is_clean)
    is_gone = not dist.is_initialized() and num_groups() == 0
    return is_gone and was_there > 0 and tensor.tolist() == [3.0, 3.0]


RECORD: Final = Mechanism(
    "a collective that the dispatcher shows", _recorded_collectives
)
ENDS: Final = Mechanism("the end of process groups on gloo", _ends_of_groups)
ENDS_OF_NCCL: Final = Mechanism("the end of communicators of NCCL", has_all_ends)
