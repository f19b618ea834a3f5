"""Backwards that autograd does not show: one thread's in another's, and compiled autograd."""

import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from syncverify.synchronizer import (
    BucketNotReadyError,
    GradientSynchronizer,
    LateAccumulationError,
    LifecycleError,
    StepFailedError,
    SynchronizerConfig,
    SynchronizerError,
)
from syncverify.synchronizer.backward.autograd_hooks import BackwardWatch


def overlapping(a: nn.Parameter, b: nn.Parameter) -> list[Exception]:
    """Run a backward, and another one between its gradients of `a` and of `b`."""
    errors: list[Exception] = []

    def run(factor: torch.Tensor) -> None:
        try:
            (factor * a).sum().backward()
        except SynchronizerError as error:
            errors.append(error)

    def between(_: Any) -> None:
        other = threading.Thread(target=run, args=[b])
        other.start()
        other.join()

    inner = b * 1  # backward comes to `a` first, and then here
    inner.register_hook(between)
    run(inner)
    return errors


@pytest.mark.parametrize(
    ("required", "refused_in_backward"),
    [(2, []), (1, [LateAccumulationError, StepFailedError])],
)
def test_backwards_that_overlap_are_refused(
    two_ranks, required, refused_in_backward
) -> None:
    """Autograd does not tell such a backward from one inside of the other."""
    a, b = (nn.Parameter(torch.ones(3)) for _ in range(2))
    config = SynchronizerConfig(process_group=dist.group.WORLD)
    with GradientSynchronizer([[a, b]], 1, required, config=config) as synchronizer:
        for _ in range(required):
            (a * b).sum().backward()
        synchronizer.wait()
        synchronizer.zero_grad()
        found = overlapping(a, b)
        assert [type(error) for error in found] == refused_in_backward
        with pytest.raises(SynchronizerError) as caught:
            synchronizer.wait()
        if not found:
            assert type(caught.value) is BucketNotReadyError
            assert "on several threads" in str(caught.value)


def test_hook_that_no_node_calls_is_refused() -> None:
    """Compiled autograd calls hooks outside of nodes."""
    end = threading.Event()
    watch = BackwardWatch(lock=threading.Lock(), on_end=end.set)
    with pytest.raises(LifecycleError, match="compiled autograd"):
        watch.open()
    assert not watch.is_open
