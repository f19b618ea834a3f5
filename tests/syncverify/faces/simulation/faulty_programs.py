"""Programs with one fault each; the line of the fault has the comment `# fault`."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist


def _ones(rank: int, size: int = 4) -> torch.Tensor:
    return torch.ones(size, device="cuda") * (rank + 1)


def reads_before_wait(rank: int) -> torch.Tensor:
    gradient = _ones(rank)
    work = dist.all_reduce(gradient, async_op=True)
    doubled = gradient * 2  # fault
    work.wait()
    return doubled


def never_waits(rank: int) -> torch.Tensor:
    parameter = _ones(rank)
    dist.broadcast(parameter, 0, async_op=True)  # fault
    return parameter


def side_stream_without_wait(rank: int) -> torch.Tensor:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        scaled = _ones(rank) * 3
    return scaled + 1  # fault


def waits_for_an_event_that_is_too_early(rank: int) -> torch.Tensor:
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    gradient = _ones(rank)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        event.record()
        gradient.mul_(2)
    torch.cuda.current_stream().wait_event(event)
    return gradient.sum()  # fault


def shapes_differ(rank: int) -> None:
    dist.all_reduce(torch.ones(4 + rank, device="cuda"))  # fault


def operations_differ(rank: int) -> None:
    if rank:
        dist.all_reduce(torch.ones(4, device="cuda"))  # fault
    else:
        dist.broadcast(torch.ones(4, device="cuda"), 0)  # fault


def drops_memory_of_a_side_stream(rank: int) -> torch.Tensor:
    side = torch.cuda.Stream()
    temporary = _ones(rank)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        total = temporary.sum()  # fault
    del temporary
    other = torch.zeros(4, device="cuda")
    torch.cuda.current_stream().wait_stream(side)
    return total + other


def records_the_wrong_stream(rank: int) -> torch.Tensor:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        buffer = _ones(rank)
    torch.cuda.current_stream().wait_stream(side)
    doubled = buffer * 2  # fault
    buffer.record_stream(side)
    del buffer
    with torch.cuda.stream(side):
        torch.zeros(4, device="cuda")
    return doubled


def both_receive_first(rank: int) -> None:
    message = torch.ones(4, device="cuda")
    dist.recv(torch.empty(4, device="cuda"), 1 - rank)  # fault
    dist.send(message, 1 - rank)


def one_rank_leaves_early(rank: int) -> None:
    for step in range(3):
        if rank and step == 2:
            return
        dist.all_reduce(_ones(rank))  # fault


def compiles_a_read_before_wait(rank: int) -> torch.Tensor:
    @torch.compile(backend="eager", fullgraph=True)
    def doubled(tensor: torch.Tensor) -> torch.Tensor:
        return tensor * 2

    work = dist.all_reduce(gradient := _ones(rank), async_op=True)
    early = doubled(gradient)  # fault
    work.wait()
    return early


def uses_a_destroyed_group(rank: int) -> None:
    ranks = dist.new_group()
    dist.all_reduce(ones := _ones(rank), group=ranks)
    dist.destroy_process_group(ranks)
    dist.all_reduce(ones)
    dist.all_reduce(ones, group=ranks)  # fault


@dataclass(frozen=True)
class Fault:
    """A program with a fault, and the property that a simulation finds violated."""

    program: Callable[[int], Any]
    violates: str

    @property
    def lines(self) -> set[int]:
        lines, first = inspect.getsourcelines(self.program)
        return {first + at for at, line in enumerate(lines) if "# fault" in line}


_ORDER, _FREED = "streams_order_shared_memory", "memory_outlives_its_streams"
_MATCH, _WAIT = "collectives_match_across_ranks", "every_wait_completes"
_END = "every_rank_finishes"
FAULTS = (
    Fault(reads_before_wait, _ORDER),
    Fault(never_waits, _ORDER),
    Fault(compiles_a_read_before_wait, _ORDER),
    Fault(side_stream_without_wait, _ORDER),
    Fault(waits_for_an_event_that_is_too_early, _ORDER),
    Fault(shapes_differ, _MATCH),
    Fault(operations_differ, _MATCH),
    Fault(drops_memory_of_a_side_stream, _FREED),
    Fault(records_the_wrong_stream, _FREED),
    Fault(both_receive_first, _WAIT),
    Fault(one_rank_leaves_early, _WAIT),
    Fault(uses_a_destroyed_group, _END),
)
