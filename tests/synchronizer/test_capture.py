"""What capture in a CUDA graph needs of a step, as far as a CPU can show it."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig
from tests.synchronizer.operators import Operators


def _noted(name: str, reads: list[str]) -> Any:
    original = getattr(torch.Tensor, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        reads.append(name)
        return original(*args, **kwargs)

    return call


def step(sums: GradientSynchronizer, weights: list[nn.Parameter]) -> None:
    torch.stack(weights).sum().backward()
    sums.wait()
    sums.zero_grad()


@pytest.mark.parametrize("has_checks", [False, True])
def test_steps_after_the_second_are_alike_and_only_checks_read_on_the_host(
    two_ranks, monkeypatch: pytest.MonkeyPatch, *, has_checks: bool
) -> None:
    reads: list[str] = []
    for name in ("item", "tolist", "__bool__", "cpu"):
        monkeypatch.setattr(torch.Tensor, name, _noted(name, reads))
    weights = [nn.Parameter(torch.zeros(256)) for _ in range(3)]
    config = SynchronizerConfig(
        process_group=dist.group.WORLD,
        process_group_reduction="avg",
        unused="keep_none" if has_checks else "error",
        check_finite=has_checks,
    )
    with GradientSynchronizer([weights], 2**-10, 1, config=config) as sums:
        for _ in range(2):  # the first step learns, and its end cuts the buckets anew
            step(sums, weights)
        gradients = [weight.grad for weight in weights]
        seen = []
        for _ in range(2):
            with Operators() as operators:
                step(sums, weights)
            seen.append(operators.names)
        assert seen[0] == seen[1]
        assert bool(reads) == has_checks, reads
        assert all(w.grad is g for w, g in zip(weights, gradients, strict=True))
