"""Unusual programs that are right: no simulation may accuse one."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed import init_process_group
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_model_state_dict,
)


def _ones(rank: int, size: int = 4) -> torch.Tensor:
    return torch.ones(size, device="cuda") * (rank + 1)


def waits_on_another_stream_first(rank: int) -> torch.Tensor:
    side = torch.cuda.Stream()
    work = dist.all_reduce(total := _ones(rank), async_op=True)
    with torch.cuda.stream(side):
        work.wait()
    torch.cuda.current_stream().wait_stream(side)
    return total


def polls_until_done(rank: int) -> torch.Tensor:
    work = dist.all_reduce(total := _ones(rank), async_op=True)
    while not work.is_completed():
        pass
    return total


def waits_for_the_last_of_a_group(rank: int) -> list[torch.Tensor]:
    totals = [_ones(rank) for _ in range(3)]
    works = [dist.all_reduce(each, async_op=True) for each in totals]
    works[-1].wait()
    return totals


def pings_and_pongs(rank: int) -> torch.Tensor:
    buffers = [_ones(rank), torch.empty(4, device="cuda")]
    for step in range(4):
        sent, got = buffers[step % 2], buffers[1 - step % 2]
        sends = dist.P2POp(dist.isend, sent, 1 - rank)
        receives = dist.P2POp(dist.irecv, got, 1 - rank)
        for work in dist.batch_isend_irecv([sends, receives]):
            work.wait()
    return buffers[0]


def ranks_take_different_branches(rank: int) -> torch.Tensor:
    if rank:
        total = _ones(rank)
        dist.all_reduce(total)
    else:
        dist.all_reduce(total := torch.zeros(4, device="cuda"))
    return total


def overlaps_through_events(rank: int) -> torch.Tensor:
    side, ready, done = torch.cuda.Stream(), torch.cuda.Event(), torch.cuda.Event()
    bucket = _ones(rank)
    ready.record()
    with torch.cuda.stream(side):
        ready.wait()
        bucket.mul_(2)
        done.record()
    done.wait()
    return bucket.add_(1)


def records_a_stream(rank: int) -> torch.Tensor:
    side = torch.cuda.Stream()
    temporary = _ones(rank)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        total = temporary.sum()
    temporary.record_stream(side)
    del temporary
    other = torch.zeros((), device="cuda")
    torch.cuda.current_stream().wait_stream(side)
    return total + other


def synchronizes_the_device(rank: int) -> float:
    with torch.cuda.stream(torch.cuda.Stream()):
        scaled = _ones(rank) * 3
    torch.cuda.synchronize()
    return float(scaled.sum())


def makes_a_group_of_one(rank: int) -> torch.Tensor:
    groups = [dist.new_group([each]) for each in range(2)]
    total = _ones(rank)
    dist.all_reduce(total, group=groups[rank])
    return total


def frees_memory_in_flight_before_default_waits(rank: int) -> torch.Tensor:
    side = torch.cuda.Stream()
    summed = _ones(rank)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        dist.all_reduce(summed)
        total = summed.sum()
    del summed
    torch.cuda.current_stream().wait_stream(side)
    return total + torch.zeros(4, device="cuda")


def exchanges_objects(rank: int) -> list[object]:
    everyone: list[object] = [None, None]
    dist.all_gather_object(everyone, {"rank": rank})
    sent = [f"from {rank}"]
    dist.broadcast_object_list(sent, 0)
    gathered: list[object] | None = [None, None] if rank == 0 else None
    dist.gather_object(rank, gathered, 0)
    own: list[object] = [None]
    dist.scatter_object_list(own, ["a", "b"] if rank == 0 else None, 0)
    return [everyone, sent, gathered, own]


def makes_its_default_group_again(rank: int) -> torch.Tensor:
    totals = []
    for _ in range(2):
        init_process_group("nccl")
        dist.all_reduce(total := _ones(rank))
        totals.append(total)
        on_hosts = dist.new_group(backend="gloo")
        dist.all_reduce(torch.zeros(2, device="cpu"), group=on_hosts)
        dist.destroy_process_group()
    return totals[0] + totals[1]


def pins_what_it_makes(rank: int) -> torch.Tensor:
    drawn = torch.randn(4, pin_memory=True)
    listed = torch.tensor([rank] * 4, pin_memory=True)
    assert drawn.is_pinned()
    assert listed.is_pinned()
    pinned = torch.rand_like(drawn, pin_memory=True) + drawn + listed
    dist.all_reduce(total := pinned.cuda(non_blocking=True))
    return total


def compiles_a_functional_collective(rank: int) -> torch.Tensor:
    @torch.compile(backend="eager", fullgraph=True)
    def total_of_doubled(tensor: torch.Tensor) -> torch.Tensor:
        everyone: Any = dist.group.WORLD
        return functional.all_reduce(tensor * 2, "sum", everyone) + 1

    return total_of_doubled(_ones(rank))


def loads_parameters_of_rank_0(rank: int) -> torch.Tensor:
    model = nn.Linear(4, 2).cuda()
    known = model.state_dict() if rank == 0 else {}
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, known, options=options)
    return model(_ones(rank))


RIGHT: tuple[Callable[[int], Any], ...] = (
    waits_on_another_stream_first,
    polls_until_done,
    waits_for_the_last_of_a_group,
    pings_and_pongs,
    ranks_take_different_branches,
    overlaps_through_events,
    records_a_stream,
    synchronizes_the_device,
    makes_a_group_of_one,
    frees_memory_in_flight_before_default_waits,
    exchanges_objects,
    makes_its_default_group_again,
    pins_what_it_makes,
    compiles_a_functional_collective,
    loads_parameters_of_rank_0,
)
