"""Remarks: what a program may mean, and is often a mistake."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from syncverify import simulate
from syncverify.faces.simulation.program import Device

Program = Callable[[int], object]
_OTHER = "of other memory"


def on_gpu(rank: int, numel: int = 4) -> torch.Tensor:
    return torch.full((numel,), float(rank), device="cuda")


def never_read(rank: int) -> torch.Tensor:
    dist.all_reduce(on_gpu(rank), async_op=True)
    last = dist.all_reduce(read := on_gpu(rank), async_op=True)
    last.wait()
    return read


def overwritten(rank: int) -> torch.Tensor:
    lost = on_gpu(rank)
    dist.all_reduce(lost, async_op=True)
    last = dist.all_reduce(read := on_gpu(rank), async_op=True)
    last.wait()
    lost.zero_()
    return read


def reads_in_the_next_step(rank: int) -> None:
    """The last step's results are for a step that is not played."""
    weight, bias = on_gpu(rank), on_gpu(rank)
    for _ in range(2):
        weight.add_(1)
        bias.add_(weight)
        dist.all_reduce(weight, async_op=True)
        last = dist.all_reduce(bias, async_op=True)
        last.wait()


@pytest.mark.parametrize("program", [never_read, overwritten])
def test_a_result_that_nothing_reads_is_a_remark(program: Program) -> None:
    simulation = simulate(program, 2)
    assert simulation.is_right
    (remark,) = str(simulation).splitlines()[:1]
    assert remark.startswith("REMARK: nothing waits for all_reduce at tests/")
    assert f"in {program.__name__} (ranks 0, 1), and nothing reads its result" in remark
    assert "timing cannot matter" in str(simulation)


def joins_uneven_inputs(rank: int) -> list[torch.Tensor]:
    model = DistributedDataParallel(nn.Linear(4, 1).cuda())
    with Join([model]):
        for _ in range(2 + rank):
            model(on_gpu(1)).sum().backward()
    return [each.detach().clone() for each in model.parameters()]


def forgets_beside_join(rank: int) -> list[torch.Tensor]:
    dist.all_reduce(on_gpu(rank), async_op=True)
    return joins_uneven_inputs(rank)


@pytest.mark.parametrize(
    ("program", "num_remarks"), [(joins_uneven_inputs, 0), (forgets_beside_join, 1)]
)
def test_a_handle_that_torch_drops_is_no_remark(
    program: Program, num_remarks: int
) -> None:
    simulation = simulate(program, 2)
    assert simulation.is_right, str(simulation)
    names = [str(each.lines[0]).rpartition(" ")[2] for each in simulation.remarks]
    assert names == [program.__name__] * num_remarks


def in_order_of(rank: int, *listed: Any) -> Sequence[Any]:
    """Return the order of a rank."""
    return listed if rank else listed[::-1]


def lines_in_another_order(rank: int) -> list[torch.Tensor]:
    weight, bias = on_gpu(rank), on_gpu(rank) * 10

    def sum_weight() -> None:
        dist.all_reduce(weight)

    def sum_bias() -> None:
        dist.all_reduce(bias)

    for run in in_order_of(rank, sum_weight, sum_bias):
        run()
    return [weight, bias]


def callers_in_another_order(rank: int) -> list[torch.Tensor]:
    weight, bias = on_gpu(rank), on_gpu(rank) * 10

    def summed(tensor: torch.Tensor) -> None:
        dist.all_reduce(tensor)

    def sum_weight() -> None:
        summed(weight)

    def sum_bias() -> None:
        summed(bias)

    for run in in_order_of(rank, sum_weight, sum_bias):
        run()
    return [weight, bias]


def slices_in_another_order(rank: int) -> torch.Tensor:
    flat = on_gpu(rank, 8)
    for each in in_order_of(rank, flat[:4], flat[4:]):
        dist.all_reduce(each)
    return flat


def copies_in_another_order(rank: int) -> list[torch.Tensor]:
    parts = [on_gpu(rank + 10 * index) for index in range(2)]
    for part in in_order_of(rank, *parts):
        mean = part.double().float() / 2
        dist.all_reduce(mean)
        part.copy_(mean)
    return parts


def gradients_in_another_order(rank: int) -> list[torch.Tensor]:
    weights = [on_gpu(1).requires_grad_() for _ in range(2)]
    (weights[0] * weights[1] * (rank + 1)).sum().backward()
    for weight in in_order_of(rank, *weights):
        weight.grad.div_(2)
        dist.all_reduce(weight.grad)
    return weights


def sharded_layers(rank: int, order: Callable[..., Sequence[Any]]) -> torch.Tensor:
    """FSDP2 gathers the shards of a layer where the layer runs."""
    layers = [fully_shard(nn.Linear(4, 4).cuda()) for _ in range(3)]
    result = torch.ones(2, 4, device="cuda")
    for layer in order(rank, *layers):
        result = layer(result)
    return result


def test_sharded_layers_in_another_order_are_a_remark() -> None:
    def in_one_order(_: int, *layers: nn.Module) -> Sequence[nn.Module]:
        return layers

    swapped = simulate(lambda rank: sharded_layers(rank, in_order_of), 2)
    assert "of 10 x float32" in str(swapped)
    assert "the same collectives in different orders" in str(swapped)
    assert simulate(lambda rank: sharded_layers(rank, in_one_order), 2).remarks == ()


@pytest.mark.parametrize(
    ("device", "program", "lines"),
    [
        ("cuda", lines_in_another_order, ("sum_bias", "sum_weight")),
        ("cpu", callers_in_another_order, ("sum_bias", "sum_weight")),
        ("cuda", slices_in_another_order, ("slices_in_another_order", _OTHER)),
        ("cpu", slices_in_another_order, ("slices_in_another_order", _OTHER)),
        ("cuda", copies_in_another_order, ("copies_in_another_order", _OTHER)),
        ("cuda", gradients_in_another_order, ("gradients_in_another_order", _OTHER)),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_equal_collectives_in_another_order_are_a_remark(
    monkeypatch: pytest.MonkeyPatch,
    device: Device,
    program: Program,
    lines: tuple[str, str],
) -> None:
    monkeypatch.setitem(on_gpu.__globals__, "on_gpu", _made_on(device))
    simulation = simulate(program, 2, device=device)
    assert simulation.is_right
    remark, *_, verdict = str(simulation).splitlines()
    assert remark.startswith("REMARK: all_reduce SUM of 4 x float32 at tests/")
    assert f"in {lines[0]} on rank 0 meets that" in remark
    assert lines[1] in remark
    assert remark.endswith("unless that is meant, they exchange their values")
    assert verdict.endswith("1 run: see the remark)")


def _made_on(device: str) -> Callable[..., torch.Tensor]:
    def made(rank: int, numel: int = 4) -> torch.Tensor:
        return torch.full((numel,), float(rank), device=device)

    return made


def one_more_tensor(rank: int) -> list[torch.Tensor]:
    """Numbers of storages differ between the ranks."""
    buffers = [on_gpu(rank, 8) for _ in range(1 + rank)][:1]
    parts = [buffers[0][:4], buffers[0][4:]]
    for _ in range(2):
        for each in parts:
            dist.all_reduce(each)
    return parts


def barriers_in_another_order(rank: int) -> None:
    def before() -> None:
        dist.barrier()

    def after() -> None:
        dist.barrier()

    for run in in_order_of(rank, before, after):
        run()


def loops_of_other_lengths(rank: int) -> None:
    """The lines differ in number: rank 1 joins by a line of its own."""

    def own_step() -> None:
        dist.all_reduce(on_gpu(rank))

    def joined_step() -> None:
        dist.all_reduce(on_gpu(rank))

    for step in range(3):
        (own_step if step < 3 - rank else joined_step)()


def owners_have_memory_of_their_own(rank: int) -> list[torch.Tensor]:
    """Each owner sends its tensor, and the others receive into one buffer."""
    parts, buffer = [on_gpu(rank) for _ in range(2)], on_gpu(rank)
    for owner, part in enumerate(parts):
        sent = part if owner == rank else buffer
        dist.broadcast(sent, owner)
        part.copy_(sent)
    return parts


def buffers_in_another_order(rank: int) -> torch.Tensor:
    """Each step fills a buffer anew, and it does not matter which."""
    buffers, total = [on_gpu(rank) for _ in range(2)], on_gpu(0)
    for step in range(2):
        buffer = buffers[(step + rank) % 2].fill_(step)
        dist.all_reduce(buffer)
        total += buffer
    return total


def batches_in_another_order(rank: int) -> list[torch.Tensor]:
    """Each rank computes on the batches in an order of its own, and so makes their losses."""
    batches = [on_gpu(index) for index in range(2)]
    losses = [on_gpu(0), on_gpu(0)]
    order = [0, 1] if rank else [1, 0]
    for index in order:
        losses[index] = (batches[index] ** 2).mean()
    for each in losses:
        dist.all_reduce(each)
    for step in range(2):
        loss = (batches[(step + rank) % 2] ** 2).mean()
        dist.all_reduce(loss)
        losses.append(loss)
    return losses


def tasks_in_another_order(rank: int) -> list[torch.Tensor | None]:
    """Backward passes make gradients in an order of the rank; it sums them in that of the weights."""
    weights = [on_gpu(1).requires_grad_() for _ in range(2)]
    for weight in in_order_of(rank, *weights):
        (weight * (rank + 1)).sum().backward()
    for weight in weights:
        dist.all_reduce(weight.grad)
    return [weight.grad for weight in weights]


@pytest.mark.parametrize(
    "program",
    [
        reads_in_the_next_step,
        owners_have_memory_of_their_own,
        buffers_in_another_order,
        batches_in_another_order,
        tasks_in_another_order,
        one_more_tensor,
        barriers_in_another_order,
        loops_of_other_lengths,
    ],
)
def test_lines_that_differ_between_ranks_are_none(program: Program) -> None:
    simulation = simulate(program, 2)
    assert simulation.is_right
    assert simulation.remarks == ()
    assert "timing cannot matter" in str(simulation)
