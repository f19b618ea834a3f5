"""The table "In your training loop" of docs/adopting.md, on two gloo processes.

Run with arguments, this file is one rank. Each program plays a row of the table or a part of
one; rows that tests of single steps play, and those of ZeRO-2, ZeRO-3 and FSDP2, have none.
"""

import copy
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from syncverify import synchronizer as package
from syncverify.synchronizer import (
    GradientSynchronizer,
    SynchronizerConfig,
)

PAGE = Path(__file__).parents[2] / "docs" / "adopting.md"
# The page's own programs for two of its rows, by their first words.
(UNEVEN,) = re.findall(r"```python\n(while True:.+?)```", PAGE.read_text(), re.DOTALL)
(COPIES,) = re.findall(r"```python\n(copies = .+?)```", PAGE.read_text(), re.DOTALL)
WORLD_SECONDS = 120
INPUTS = torch.arange(24.0).reshape(2, 4, 3).flip(2) / 8  # by rank


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


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


ROWS = (
    training_resumes_from_a_checkpoint,
    a_rank_without_data_takes_part,
    zero_redundancy_optimizer_steps,
    adam_steps_on_copies_in_float32,
)


@pytest.mark.long
def test_programs_of_the_rows_pass(tmp_path: Path) -> None:
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(package.__file__).parents[2]),
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, str(rank), tmp_path / "store"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [rank.communicate(timeout=WORLD_SECONDS)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(outputs)


def run_rank(rank: int, store: str) -> None:
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=WORLD_SECONDS // 2),
    )
    for row in ROWS:
        row(rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(int(sys.argv[1]), sys.argv[2])
    # As in test_gloo_processes.py: threads of gloo may outlive the interpreter.
    sys.stdout.flush()
    os._exit(0)
