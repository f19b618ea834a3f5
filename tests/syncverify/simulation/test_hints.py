"""Hints of a report about a program: the repair to try first."""

import torch
import torch.distributed as dist
from torch import nn

from syncverify import simulate


def both_send_first(rank: int) -> None:
    tensor = torch.ones(4, device="cuda")
    dist.send(tensor, 1 - rank)
    dist.recv(tensor, 1 - rank)


def all_send_in_a_ring(rank: int) -> None:
    tensor = torch.ones(4)
    dist.send(tensor, (rank + 1) % 3)
    dist.recv(tensor, (rank - 1) % 3)


def both_receive_first(rank: int) -> None:
    tensor = torch.ones(4, device="cuda")
    dist.recv(tensor, 1 - rank)
    dist.send(tensor, 1 - rank)


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
    assert work is not None
    work.is_completed()
    work.wait()


def test_a_report_of_one_timing_names_the_option_for_others() -> None:
    assert "other timings may differ, see --schedules all)" in str(simulate(polls, 2))
