"""Programs on gloo: sums that travel in several ways, and rows of docs/adopting.md.

Rows that tests of single steps play, and those of ZeRO-2, ZeRO-3 and FSDP2, have no program.
"""

import copy
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard

from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig
from syncverify.synchronizer.hooks import bf16_error_feedback
from tests.conformance.conftest import play  # noqa: F401  # a fixture
from tests.programs import parameter

PAGE = Path(__file__).parents[2] / "docs" / "adopting.md"
# The page's own programs for two of its rows, by their first words.
(UNEVEN,) = re.findall(r"```python\n(while True:.+?)```", PAGE.read_text(), re.DOTALL)
(COPIES,) = re.findall(r"```python\n(copies = .+?)```", PAGE.read_text(), re.DOTALL)
KIB_MB = 2**-10
INPUTS = torch.arange(24.0).reshape(2, 4, 3).flip(2) / 8  # by rank


def network() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    # Ranks are threads, which share torch's own generator.
    generator = torch.Generator().manual_seed(0)
    for each in model.parameters():
        nn.init.normal_(each, generator=generator)
    return model


def accumulate(parameter: nn.Parameter, scale: float) -> None:
    """Contribute scale * (0, 1, 2, ...): a gradient in which positions matter."""
    local = parameter.to_local()
    (local * torch.arange(local.numel()) * scale).sum().backward()


def holds(parameter: nn.Parameter, scale: float) -> bool:
    local = parameter.grad.to_local()
    return torch.equal(local, torch.arange(local.numel()) * scale)


def ranks_are_in_different_numbers_of_groups(rank: int) -> None:
    if rank < 2:
        dist.new_group([0, 1], use_local_synchronization=True)
    mesh = init_device_mesh("cpu", (1, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
    a = parameter(mesh, Replicate(), Replicate(), Replicate(), numel=2**15)
    with GradientSynchronizer([[a]], 1, 1) as sums:
        accumulate(a, 2**rank)
        sums.wait()
        assert holds(a, 0b1111)


def sums_are_scattered_and_measured(rank: int) -> None:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    group = [parameter(mesh, Replicate(), numel=256 + 32 * i) for i in range(4)]
    group.append(parameter(mesh, Shard(0), numel=64))
    config = SynchronizerConfig(mode="reduce_scatter", check_finite=True)
    with GradientSynchronizer([group], KIB_MB, 1, config=config) as sums:
        for _ in range(2):
            ordered = group if rank else group[::-1]
            for each in ordered:
                accumulate(each, 2**rank)
            sums.wait()
            owned = sums.owned_grads()
            for each in owned:
                factor = 2**rank if each.parameter is group[-1] else 3
                stop = each.start_numel + each.values.numel()
                expected = torch.arange(each.start_numel, stop) * factor
                assert torch.equal(each.values, expected.float())
            # Sums of the squares of 0, 1, ..., n - 1.
            squares = [(n - 1) * n * (2 * n - 1) // 6 for n in (256, 288, 320, 352, 64)]
            total = 9 * sum(squares[:4]) + (1 + 4) * squares[4]
            assert abs(sums.grad_norm().item() / total**0.5 - 1) < 400 * 2**-24
            assert len(sums.logging_data()["buckets"]) == 5
            sums.zero_grad()


def a_comm_hook_reduces(rank: int) -> None:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    group = [parameter(mesh, Replicate(), numel=60 + i) for i in range(4)]
    config = SynchronizerConfig(comm_hook=bf16_error_feedback)
    with GradientSynchronizer([group], KIB_MB, 1, config=config) as sums:
        for _ in range(2):
            for each in group:
                accumulate(each, 2**rank)  # sums of up to 3 * 63 < 2**8
            sums.wait()
            assert all(holds(each, 3) for each in group)
            sums.zero_grad()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


@contextmanager
def averaged(model: nn.Module, **options: Any) -> Iterator[GradientSynchronizer]:
    config = SynchronizerConfig(
        process_group=dist.group.WORLD, process_group_reduction="avg", **options
    )
    with GradientSynchronizer.from_module(model, 25, 1, config=config) as synchronizer:
        yield synchronizer


def loss_of(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = model(inputs).square().mean()
    return loss


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def trained_alone(steps: int, inputs: torch.Tensor = INPUTS) -> torch.Tensor:
    """Train on the equal parts of all ranks at once."""
    model = network()
    optimizer = sgd(model)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, inputs.flatten(0, -2)).backward()
        optimizer.step()
    return weights(model)


def same(model: nn.Module, expected: torch.Tensor) -> None:
    # A mean over ranks of means rounds otherwise than one mean.
    torch.testing.assert_close(weights(model), expected, rtol=1e-5, atol=1e-7)


def equal_on_both_ranks(model: nn.Module) -> None:
    gathered = [torch.empty_like(weights(model)) for _ in range(2)]
    dist.all_gather(gathered, weights(model))
    assert torch.equal(*gathered)


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    synchronizer: GradientSynchronizer,
    rank: int,
    steps: int,
) -> None:
    for _ in range(steps):
        loss_of(model, INPUTS[rank]).backward()
        synchronizer.wait()
        optimizer.step()
        synchronizer.zero_grad()


def training_resumes_from_a_checkpoint(rank: int) -> None:
    model = network()
    optimizer = sgd(model)
    with averaged(model) as synchronizer:
        train(model, optimizer, synchronizer, rank, 2)
        saved = {
            "model": {k: v.clone() for k, v in model.state_dict().items()},
            "optimizer": optimizer.state_dict(),
            "synchronizer": synchronizer.state_dict(),
        }
    for loaded_first in (True, False):
        again = network()
        optimizer = sgd(again)
        if loaded_first:
            again.load_state_dict(saved["model"])
        with averaged(again) as synchronizer:
            if not loaded_first:
                again.load_state_dict(saved["model"])
            # As from a file: the optimizer keeps the tensors that it is given.
            optimizer.load_state_dict(copy.deepcopy(saved["optimizer"]))
            synchronizer.load_state_dict(saved["synchronizer"])
            train(again, optimizer, synchronizer, rank, 2)
        same(again, trained_alone(4))


def a_rank_without_data_takes_part(rank: int) -> None:
    model = network()
    optimizer = sgd(model)
    batches = iter([INPUTS[rank]] * (2 - rank))  # two on rank 0, and one on rank 1
    with averaged(model, unused="zeros") as synchronizer:
        names = {"model": model, "optimizer": optimizer, "synchronizer": synchronizer}
        exec(UNEVEN, names | {"batches": batches, "torch": torch, "dist": dist})
    alone = network()
    optimizer = sgd(alone)
    for inputs in (INPUTS.flatten(0, 1), INPUTS[0]):
        optimizer.zero_grad()
        loss_of(alone, inputs).backward()
        optimizer.step()
    same(model, weights(alone))


def zero_redundancy_optimizer_steps(rank: int) -> None:
    # Torch warns in this import, which pytest takes for an error.
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = network()
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9
    )
    with averaged(model) as synchronizer:
        train(model, optimizer, synchronizer, rank, 3)
        same(model, trained_alone(3))


def wide_bfloat16() -> nn.Module:
    model = network().bfloat16()
    for each in model.parameters():
        each.grad_dtype = torch.float32
    return model


def adam_steps_on_copies_in_float32(rank: int) -> None:
    model = wide_bfloat16()
    before = weights(model)
    batches = [INPUTS[rank].bfloat16()] * 2
    with averaged(model) as synchronizer:
        names = {"model": model, "synchronizer": synchronizer, "batches": batches}
        exec(COPIES, names | {"torch": torch, "nn": nn})
    assert not torch.equal(weights(model), before)
    equal_on_both_ranks(model)


PROGRAMS: list[tuple[int, Callable[[int], None]]] = [
    (2, sums_are_scattered_and_measured),
    (2, a_comm_hook_reduces),
    (4, ranks_are_in_different_numbers_of_groups),
    (2, training_resumes_from_a_checkpoint),
    (2, a_rank_without_data_takes_part),
    (2, zero_redundancy_optimizer_steps),
    (2, adam_steps_on_copies_in_float32),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize(("num_ranks", "program"), PROGRAMS)
def test_program_is_right_on_gloo(
    play: Any,  # noqa: F811
    num_ranks: int,
    program: Callable[[int], None],
) -> None:
    play(num_ranks, program)
