"""Memory that is read before it was written: findings, and reads that come to nothing."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import syncverify

Program = Callable[[], object]
CUDA = torch.device("cuda")


def fresh(*shape: int, **options: object) -> torch.Tensor:
    return torch.empty(*shape, device=CUDA, **options)


def half_filled() -> torch.Tensor:
    flat = fresh(8)
    flat[:4].copy_(torch.ones(4, device=CUDA))
    return flat


def number_of_the_host() -> None:
    fresh(4).sum().item()


def buffers_that_nobody_sends() -> torch.Tensor:
    with torch.device("meta"):
        model = nn.BatchNorm1d(4).eval()
    model.to_empty(device=CUDA)
    nn.init.ones_(model.weight)
    nn.init.zeros_(model.bias)
    return model(torch.ones(2, 4, device=CUDA))


def reduced_and_summed() -> torch.Tensor:
    flat = half_filled()
    dist.all_reduce(flat)
    return flat.sum()


def gradient() -> torch.Tensor | None:
    weight = torch.ones(4, device=CUDA, requires_grad=True)
    (weight * fresh(4)).sum().backward()
    return weight.grad


def in_float16() -> torch.Tensor:
    return fresh(4, dtype=torch.float16) * 2


WRONG: tuple[Program, ...] = (
    number_of_the_host,
    buffers_that_nobody_sends,
    reduced_and_summed,
    gradient,
    in_float16,
)


@pytest.mark.parametrize("program", WRONG, ids=lambda each: each.__name__)
def test_a_value_from_unwritten_memory_is_found(program: Program) -> None:
    (found,) = syncverify.simulate(program, ranks=2).violations
    name = "memory_is_written_before_it_is_read"
    assert found.violation.identity == (name, "read_unwritten")


def test_the_lines_that_made_and_read_the_memory_are_named() -> None:
    (found,) = syncverify.simulate(reduced_and_summed, ranks=2).violations
    made, read = found.violation.evidence.named_lines
    assert (made.function, read.function) == ("fresh", "reduced_and_summed")


def padding_that_is_reduced() -> torch.Tensor:
    flat = half_filled()
    dist.all_reduce(flat)
    flat.div_(2)
    return flat[:4].clone()


def written_by_out() -> torch.Tensor:
    out = fresh(4)
    torch.add(torch.ones(4, device=CUDA), 1, out=out)
    return out * 2


def drawn() -> list[torch.Tensor]:
    made = [fresh(4).random_(), fresh(4).exponential_(), fresh(4).bernoulli_(0.5)]
    return [*(each * 2 for each in made), nn.Linear(3, 3, device=CUDA).weight]


def written_through_a_view() -> torch.Tensor:
    host = torch.empty(4)
    host.numpy()[:] = 1
    return host * 2


def written_in_parts() -> torch.Tensor:
    square = fresh(4, 4)
    square[:, :2] = 1
    square[:, 2:].index_copy_(
        1, torch.arange(2, device=CUDA), torch.ones(4, 2, device=CUDA)
    )
    return square.sum()


def left_out_by_a_mask() -> torch.Tensor:
    flat = half_filled()
    return torch.where(torch.arange(8, device=CUDA) < 4, flat, 0.0)


def sharded_training() -> torch.Tensor:
    model = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 3)).cuda()
    fully_shard(model[0])
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        loss: torch.Tensor = model(torch.ones(2, 5, device=CUDA)).sum()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return loss


RIGHT: tuple[Program, ...] = (
    padding_that_is_reduced,
    written_by_out,
    drawn,
    written_through_a_view,
    written_in_parts,
    left_out_by_a_mask,
)


@pytest.mark.parametrize(
    "program",
    [*RIGHT, pytest.param(sharded_training, marks=pytest.mark.slow)],
    ids=lambda each: each.__name__,
)
def test_unwritten_memory_without_an_effect_is_right(program: Program) -> None:
    assert not syncverify.simulate(program, ranks=2).violations


def message_read_early(rank: int) -> float:
    received = fresh(4)
    if rank == 0:
        dist.send(torch.ones(4, device=CUDA), 1)
        return 0.0
    work = dist.irecv(received, 0)
    number = received.sum().item()
    work.wait()
    return number


def broadcast_read_early(rank: int) -> float:
    values = torch.ones(4, device=CUDA) if rank == 0 else fresh(4)
    work = dist.broadcast(values, 0, async_op=True)
    number = values.sum().item()
    work.wait()
    return number


@pytest.mark.parametrize("program", [message_read_early, broadcast_read_early])
def test_a_rank_that_only_receives_reads_nothing(
    program: Callable[[int], float],
) -> None:
    """The early read is a race, and the collective is no reader of its own output."""
    (found,) = syncverify.simulate(program, 2).violations
    assert found.violation.property == "streams_order_shared_memory"
