"""The extent of one backward, and the notice of one that raises."""

import gc
from threading import Lock
from types import FunctionType

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from syncverify.synchronizer import LifecycleError
from syncverify.synchronizer.backward.backward_watch import BackwardWatch


class Follower:
    """Opens the watch at every first gradient, and logs the actions of autograd."""

    def __init__(self, *parameters: nn.Parameter) -> None:
        self.log: list[str] = []
        self.watch = BackwardWatch(lock=Lock(), on_end=self.on_end)
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self.on_gradient)

    def on_gradient(self, _: torch.Tensor) -> None:
        self.log.append("gradient")
        if not self.watch.is_open:
            self.watch.open()

    def on_end(self) -> None:
        self.log.append("end")


@pytest.fixture
def a() -> nn.Parameter:
    return nn.Parameter(torch.ones(2))


@pytest.fixture
def x() -> torch.Tensor:
    return torch.ones(2, requires_grad=True)


def test_checkpoints_within_checkpoints_belong_to_the_outermost_backward(a, x) -> None:
    def inner(v: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda w: w * a, v, use_reentrant=True)

    follower = Follower(a)
    used = [checkpoint(inner, x, use_reentrant=True) for _ in range(2)]
    sum(used).sum().backward()
    assert follower.log == ["gradient"] * 2 + ["end"]


def test_nothing_stays_on_a_graph_that_is_kept(a, x) -> None:
    follower = Follower(a)
    used = checkpoint(lambda v: v * a, x, use_reentrant=True)
    for _ in range(2):
        used.sum().backward(retain_graph=True)
        assert follower.log == ["gradient", "end"]
        follower.log.clear()
    names = {f.__qualname__ for f in gc.get_objects() if type(f) is FunctionType}
    assert not {name for name in names if "on_node_end" in name}


def test_hook_that_no_node_calls_is_refused() -> None:
    """Compiled autograd calls hooks outside of nodes."""
    watch = Follower().watch
    with pytest.raises(LifecycleError, match="compiled autograd"):
        watch.open()
    assert not watch.is_open
