"""Stream edges of some options and calls; the others are in test_streams."""

import pytest
import torch
from torch import nn

from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig
from tests.programs import accumulate
from tests.synchronizer.operators import Operators
from tests.synchronizer.simulated_streams import parameters


def test_flags_are_written_before_the_reduction_on_whatever_stream(streams) -> None:
    a, b = parameters(2)
    config = SynchronizerConfig(unused="keep_none")
    with GradientSynchronizer([[a, b]], 1, 1, config=config) as synchronizer:
        accumulate(a)
        assert streams.taken() == []
        with streams.on("optimizer"):
            synchronizer.wait()
        launch = ["side waits for main", "side waits for optimizer"]
        assert streams.taken()[:3] == [*launch, "all_reduce on side"]


def test_flags_are_written_without_a_copy_of_host_memory(streams) -> None:
    """Such a copy makes the host wait for the device, and cannot be captured in a graph."""
    group = parameters(5)
    config = SynchronizerConfig(unused="keep_none")
    with GradientSynchronizer([group], 1, 1, config=config) as synchronizer:
        for each in (group[0], *group[3:]):
            accumulate(each)
        with Operators() as recorded:
            synchronizer.flush()
        assert recorded.names == ["slice", "fill_"] * 3
        synchronizer.wait()


def test_flags_are_read_where_they_were_summed(
    streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    (a,) = parameters(1)
    config = SynchronizerConfig(unused="keep_none")
    with GradientSynchronizer([[a]], 1, 1, config=config) as synchronizer:
        accumulate(a)
        streams.taken()
        monkeypatch.setattr(torch.Tensor, "tolist", streams.logged("read", [1.0]))
        synchronizer.wait()
        edges = ["work.wait on side", "read on side", "main waits for side"]
        assert streams.taken() == edges


def test_zeros_for_what_did_not_come_are_written_before_the_reduction(
    streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = parameters(2)
    config = SynchronizerConfig(unused="zeros")
    with GradientSynchronizer([[a, b]], 1, 1, config=config) as synchronizer:
        synchronizer.zero_grad(set_to_none=True)
        streams.taken()
        monkeypatch.setattr(torch.Tensor, "zero_", streams.logged("zeros"))
        accumulate(a)
        with streams.on("late"):
            synchronizer.flush()
        launch = [
            "memory outlives main",  # the gradient was autograd's, the view is ours
            "side waits for main",
            "zeros on side",
            "all_reduce on side",
        ]
        assert streams.taken() == launch
        assert b.grad is not None
        synchronizer.wait()
        assert streams.taken() == ["work.wait on side", "main waits for side"]


def test_wait_comes_after_the_backward_of_gradients_that_nobody_sums(streams) -> None:
    weight = nn.Parameter(torch.zeros(3))
    config = SynchronizerConfig(allow_local_only=True)
    with GradientSynchronizer([[weight]], 1, 1, config=config) as synchronizer:
        with streams.on("x"):
            weight.sum().backward()
        streams.taken()
        with streams.on("optimizer"):
            synchronizer.wait()
        edges = ["side waits for main", "side waits for x", "optimizer waits for side"]
        assert streams.taken() == edges
