"""`syncverify.simulate` runs any function on simulated ranks and judges the run."""

import functools
import math
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from syncverify import region, simulate
from syncverify.faces.simulation.simulation import Harm
from tests.syncverify.faces.simulation.faulty_programs import (
    FAULTS,
    Fault,
    both_receive_first,
    never_waits,
    waits_for_an_event_that_is_too_early,
)
from tests.syncverify.faces.simulation.right_programs import RIGHT


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.program.__name__)
def test_a_fault_is_named_with_its_line(fault: Fault) -> None:
    simulation = simulate(fault.program, 2)
    (found,) = simulation.violations
    assert found.violation.property == fault.violates
    assert fault.lines <= {line.number for line in found.violation.evidence.lines}
    for number in fault.lines:
        assert f":{number} in {fault.program.__name__}" in str(simulation)
    assert simulation.remarks == (), "of the line that has the fault"
    if fault.violates == "streams_order_shared_memory":
        assert found.harm is not None, "another order returns another value"
        assert found.harm.as_queued != found.harm.other


def test_a_harm_shows_the_first_element_that_differs() -> None:
    def late(_: int) -> torch.Tensor:
        total = torch.full((20,), 3e38, device="cuda")
        work = dist.all_reduce(total[10:], async_op=True)
        read = total.clone()
        work.wait()
        return read

    simulation = simulate(late, 2)
    one = float(torch.tensor(3e38))
    assert simulation.violations[0].harm == Harm(0, [one] * 8, [math.inf] * 8, 10)
    assert " from element 10 on in" in str(simulation)
    # JSON has no infinity.
    assert simulation.to_json()["violations"][0]["harm"]["other"] == ["inf"] * 8


def test_a_partial_is_named_by_its_function() -> None:
    """A command that finds the function would call it with other arguments."""
    simulation = simulate(functools.partial(never_waits), 2)
    last = str(simulation).splitlines()[-1]
    assert "functools.partial(" in last
    assert "never_waits) (2 ranks" in last
    assert "  replay:" not in str(simulation)


@pytest.mark.parametrize("program", RIGHT, ids=lambda program: program.__name__)
@pytest.mark.parametrize("schedules", ["default", "all:50"])
def test_a_right_program_is_not_accused(
    program: Callable[[int], Any], schedules: str
) -> None:
    simulation = simulate(program, 2, schedules=schedules)
    assert simulation.is_right, str(simulation)
    assert simulation.remarks == ()
    simulation.check()


def _forgets_two(rank: int) -> None:
    reduced, *parts, part = (torch.ones(2, device="cuda") for _ in range(4))
    if rank:
        work = dist.all_reduce(reduced, async_op=True)
    else:
        dist.all_reduce(reduced, async_op=True)
    if rank:
        work.wait()
    dist.all_gather(parts, part, async_op=True)


def test_a_collective_that_nothing_waits_for_is_a_remark() -> None:
    simulation = simulate(_forgets_two, 2)
    assert simulation.is_right
    assert [(each.operation, each.ranks) for each in simulation.remarks] == [
        ("all_reduce", (0,)),
        ("all_gather", (0, 1)),
    ]
    text = str(simulation)
    assert "REMARK: nothing waits for all_gather at tests/" in text
    assert "in _forgets_two (ranks 0, 1): its result may never be there" in text
    assert simulation.to_json()["remarks"] == [
        line.removeprefix("REMARK: ") for line in text.splitlines()[:2]
    ]


def test_a_wait_of_the_host_is_a_wait_for_all_collectives() -> None:
    def program(rank: int) -> None:
        dist.all_reduce(torch.ones(2, device="cuda"), async_op=True)
        torch.cuda.synchronize()

    assert simulate(program, 2).remarks == ()


def test_a_fault_gives_no_remark() -> None:
    def program(rank: int) -> None:
        dist.all_reduce(torch.ones(2, device="cuda"), async_op=True)
        raise ValueError("no such shard")

    assert simulate(program, 2).remarks == ()


def _splits_differ(rank: int) -> None:
    sizes = [[3, 5], [2, 6]][rank]
    received = [[3, 2], [4, 6]][rank]  # rank 1 expects four of the five
    out = torch.empty(sum(received), device="cuda")
    dist.all_to_all_single(out, torch.ones(8, device="cuda"), received, sizes)


def _order_of_twins_differs(rank: int) -> None:
    groups = [dist.group.WORLD, dist.new_group()]
    one = torch.ones(2, device="cuda")
    works = [
        dist.all_reduce(one, group=group, async_op=True)
        for group in groups[:: -1 if rank else 1]
    ]
    for work in works:
        work.wait()


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (_splits_differ, "all_to_all_single of [2, 6] for the ranks and [4, 6] from"),
        (_order_of_twins_differs, "group 1: all_reduce SUM of 2 x float32"),
        (
            waits_for_an_event_that_is_too_early,
            ", but only for what was queued before the event at ",
        ),
    ],
)
def test_a_report_tells_apart_what_differs(
    program: Callable[[int], None], words: str
) -> None:
    assert words in str(simulate(program, 2))


def test_a_fault_that_one_timing_shows_has_its_schedule() -> None:
    def program(rank: int) -> None:
        work = dist.all_reduce(torch.ones(2, device="cuda"), async_op=True)
        if work.is_completed():
            dist.barrier()
        work.wait()

    simulation = simulate(program, 2, schedules="all")
    (found,) = simulation.violations
    assert found.violation.cause == "deadlock"
    (again,) = simulate(program, 2, schedule=found.schedule).violations
    assert again == found


def test_a_region_is_named_in_the_report() -> None:
    def program(rank: int) -> torch.Tensor:
        total = torch.ones(2, device="cuda")
        with region("reduce", step=3):
            dist.all_reduce(total, async_op=True)
        return total

    assert "(step 3, reduce)" in str(simulate(program, 2))
    with region("forward"):
        pass  # nothing, outside of a simulation


def test_what_is_not_simulated_gives_no_verdict() -> None:
    def program(rank: int) -> None:
        if rank == 0:
            dist.all_reduce(torch.ones(2, device="cuda"), async_op=True)
        dist.recv(torch.ones(2, device="cuda"))

    simulation = simulate(program, 2)
    assert simulation.refused
    assert not simulation.is_right
    assert (simulation.violations, simulation.results) == ((), ())
    with pytest.raises(AssertionError, match="NOT SIMULATED"):
        simulation.check()


def test_all_ranks_share_one_machine() -> None:
    def program(rank: int) -> list[int]:
        local = [int(os.environ[f"LOCAL_{name}"]) for name in ("RANK", "WORLD_SIZE")]
        return [*local, torch.cuda.current_device(), torch.cuda.device_count()]

    assert simulate(program, 4).results == tuple(
        [rank, 4, rank, 4] for rank in range(4)
    )


def test_collectives_of_a_later_default_group_count_from_zero() -> None:
    def program(rank: int) -> None:
        dist.init_process_group("nccl")
        dist.all_reduce(torch.ones(2, device="cuda"))
        dist.destroy_process_group()
        dist.init_process_group("nccl")
        if rank == 0:
            dist.all_reduce(torch.ones(2, device="cuda"))

    (found,) = simulate(program, 2).violations
    assert found.violation.cause == "deadlock"
    assert "waits for rank 1 in all_reduce #0 " in str(simulate(program, 2))


def _replicates_a_shard(rank: int) -> torch.Tensor:
    from torch.distributed.tensor import distribute_tensor, init_device_mesh
    from torch.distributed.tensor.placement_types import Replicate, Shard

    mesh = init_device_mesh("cuda", (2,))
    parts = distribute_tensor(torch.arange(4.0, device="cuda"), mesh, [Shard(0)])
    return parts.redistribute(placements=[Replicate()])


def test_dtensors_are_results_too() -> None:
    simulation = simulate(_replicates_a_shard, 2)
    assert simulation.is_right, str(simulation)
    assert simulation.results[1].to_local().tolist() == [0.0, 1.0, 2.0, 3.0]


def test_lines_of_torch_are_named_on_request() -> None:
    def program(rank: int) -> torch.Tensor:
        model = torch.nn.Linear(2, 2, device="cuda")
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            loss = model(torch.ones(1, 2, device="cuda"))
        return loss

    plain, named = (simulate(program, 1, names_torch=on) for on in (False, True))
    assert "torch/nn/modules/linear.py" not in str(plain)
    assert "torch/nn/modules/linear.py" in str(named)


def test_a_collective_of_fsdp2_is_named_with_the_line_of_the_program() -> None:
    def program(rank: int) -> None:
        model = torch.nn.Linear(2, 2, device="cuda")
        fully_shard(model)
        loss = model(torch.ones(1, 2, device="cuda")).sum()
        if rank:
            loss.backward()
        else:
            dist.all_reduce(loss.detach())

    report = str(simulate(program, 2))
    assert "_fsdp_collectives.py" in report
    assert "in program: loss.backward()" in report


def _reads_a_functional_sum(rank: int) -> torch.Tensor:
    world: Any = dist.group.WORLD
    operators = torch.ops._c10d_functional
    summed = operators.all_reduce(torch.ones(2, device="cuda"), "sum", world.group_name)
    read = summed + 1
    operators.wait_tensor(summed)
    return read


def test_the_remedy_of_a_functional_collective_waits_for_its_tensor() -> None:
    report = str(simulate(_reads_a_functional_sum, 2))
    assert (
        "insert `wait_tensor()` of the result of the all_reduce launched at" in report
    )
    assert "work.wait()" not in report


def both_send_first(rank: int) -> None:
    tensor = torch.ones(4, device="cuda")
    dist.send(tensor, 1 - rank)
    dist.recv(tensor, 1 - rank)


def all_send_in_a_ring(rank: int) -> None:
    tensor = torch.ones(4)
    dist.send(tensor, (rank + 1) % 3)
    dist.recv(tensor, (rank - 1) % 3)


def hint_of(report: str) -> str:
    (line,) = (line for line in report.splitlines() if line.startswith("  hint:"))
    return line


def test_ranks_that_all_send_are_told_of_receives() -> None:
    for report in (
        str(simulate(both_send_first, 2)),
        str(simulate(all_send_in_a_ring, 3, device="cpu")),
    ):
        assert "one of the two ranks receive first" in hint_of(report)
        assert "`batch_isend_irecv` or `isend`" in hint_of(report)
    assert "issue the same" in hint_of(str(simulate(both_receive_first, 2)))


def on_the_cpu(_: int) -> None:
    model = nn.Linear(2, 2)
    dist.all_reduce(model.weight.data)


def test_memory_of_the_cpu_in_a_group_of_nccl_has_a_remedy() -> None:
    hint = hint_of(str(simulate(on_the_cpu, 2)))
    assert "group's backend is nccl: move them to the device, as by `.cuda()`" in hint
    assert (
        '`--device cpu`, or `device = "cpu"` in a file of `syncverify parity`' in hint
    )


def polls(_: int) -> None:
    work = dist.all_reduce(torch.ones(4, device="cuda"), async_op=True)
    work.is_completed()
    work.wait()


def test_a_report_of_one_timing_names_the_option_for_others() -> None:
    assert "other timings may differ, see --schedules all)" in str(simulate(polls, 2))
