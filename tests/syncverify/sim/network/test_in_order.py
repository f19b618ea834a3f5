"""On NCCL a collective reads what an earlier one of its communicator has written."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from syncverify.sim.machine import SimulatedMachine


def summed_twice(first: slice, second: slice) -> tuple[list[float], list[float]]:
    """Return a buffer of rank 0 when two sums of its parts are issued, and after the second's wait."""
    seen: list[Any] = []

    def play(rank: int) -> None:
        buffer = torch.ones(4)
        dist.all_reduce(buffer[first], async_op=True)
        work = dist.all_reduce(buffer[second], async_op=True)
        issued = buffer.tolist()
        work.wait()
        if rank == 0:
            seen.extend([issued, buffer.tolist()])

    machine = SimulatedMachine(2, completes_in_order=True)
    _, stall = machine.run(play)
    assert stall is None
    issued, waited = seen
    return issued, waited


def test_a_sum_of_a_sum_reads_it() -> None:
    _, waited = summed_twice(slice(0, 4), slice(0, 4))
    assert waited == [4.0] * 4


@pytest.mark.parametrize(
    ("first", "second"), [(slice(0, 2), slice(2, 4)), (slice(0, 0), slice(0, 4))]
)
def test_other_bytes_of_a_buffer_are_as_late_as_before(
    first: slice, second: slice
) -> None:
    issued, waited = summed_twice(first, second)
    assert issued == [1.0] * 4
    assert waited == [2.0] * 4


def wait(work: Any) -> None:
    work.wait()


def poll(work: Any) -> None:
    while not work.is_completed():
        pass


@pytest.mark.parametrize("end", [wait, poll])
@pytest.mark.parametrize("num_between", [0, 1])
def test_a_sum_is_complete_with_a_later_one_of_its_stream(
    end: Callable[[Any], None], num_between: int
) -> None:
    """A sum without a handle in between runs on the current stream, and changes nothing."""
    seen: list[Any] = []

    def play(_: int) -> None:
        first, between, last = (torch.ones(2) for _ in range(3))
        dist.all_reduce(first, async_op=True)
        for _ in range(num_between):
            dist.all_reduce(between)
        end(dist.all_reduce(last, async_op=True))
        seen.append(first.tolist())

    _, stall = SimulatedMachine(2, completes_in_order=True).run(play)
    assert stall is None
    assert seen == [[2.0, 2.0]] * 2
