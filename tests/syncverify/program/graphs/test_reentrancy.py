"""Reentrant backwards on the thread of one device."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from syncverify.program.graphs import reentrancy
from syncverify.program.graphs.losses import AsThread, Losses


def as_rank() -> AsThread:
    @contextmanager
    def become() -> Iterator[None]:
        yield

    return become


@pytest.mark.parametrize("backward", [reentrancy.reentrant, reentrancy.deep_reentrant])
def test_all_nodes_are_on_the_device_of_the_loss(
    monkeypatch: pytest.MonkeyPatch, backward: Any
) -> None:
    """The engine orders the nodes of one device; on another thread the graph is freed early."""
    ones, devices = torch.ones, set[str]()

    def noted(*args: Any, **options: Any) -> torch.Tensor:
        made = ones(*args, **options)
        devices.add(made.device.type)
        return made

    weight = ones(3, device="meta", requires_grad=True)
    losses = Losses({"w": (weight * weight).sum()}, {"w": weight}, as_rank)
    monkeypatch.setattr(torch, "ones", noted)
    backward(losses)
    assert devices == {"meta"}
    assert weight.grad is not None
