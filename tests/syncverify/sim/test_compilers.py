"""Code that torch compiles runs on simulated ranks: by `torch.compile`, and as TorchScript."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from tests.free_programs import play


@pytest.mark.long
def test_a_functional_collective_is_compiled() -> None:
    def summed(tensor: torch.Tensor) -> torch.Tensor:
        everyone: Any = dist.group.WORLD
        return functional.wait_tensor(
            functional.all_reduce(tensor * 2, "sum", everyone)
        )

    def program(rank: int) -> None:
        compiled = torch.compile(summed, backend="eager")
        assert compiled(torch.full((2,), rank + 1.0, device="cuda")).tolist() == [6, 6]

    play(program, 2, device="cuda")


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    return tensor + torch.ones_like(tensor) * _half(2.0)


def _half(number: float) -> float:
    return number / 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")  # since torch 2.14
def test_a_function_becomes_torchscript_within_a_run() -> None:
    """Modules of torch compile such functions as they are imported."""

    def program(_: int) -> None:
        ones = torch.ones_like
        assert torch.jit.script(doubled)(torch.ones(2)).tolist() == [2, 2]
        assert torch.ones_like is ones

    play(program, 1, device="cuda")
