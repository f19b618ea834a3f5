"""Stream edges, seen on a device module that records its calls."""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from syncverify.synchronizer import (
    GradientSynchronizer,
    HookBucket,
    ReductionFailedError,
    SynchronizerConfig,
)
from tests.programs import accumulate
from tests.synchronizer.simulated_streams import parameters


def test_the_side_stream_waits_once_for_every_stream_that_wrote(streams) -> None:
    a, b, c = parameters(3)
    with GradientSynchronizer([[a, b, c]], 1, 2) as synchronizer:
        for each, stream in ((a, "x"), (b, "y"), (c, "main"), (a, "y"), (b, "x")):
            with streams.on(stream):
                accumulate(each)
        assert streams.taken() == []
        accumulate(c)
        assert streams.taken() == [
            "side waits for main",
            "side waits for x",
            "side waits for y",
            "all_reduce on side",
        ]
        synchronizer.wait()


def test_a_stream_that_was_current_in_bind_is_waited_for_and_no_other(streams) -> None:
    """Hooks made on a side stream ran on it; the reduction was ordered after another.

    NVIDIA/Megatron-LM#3670
    """
    (a,) = parameters(1)
    synchronizer = GradientSynchronizer([[a]], 1, 1)
    with streams.on("init"):
        synchronizer.bind()
    with streams.on("x"):
        accumulate(a)
    edges = ["side waits for init", "side waits for x", "all_reduce on side"]
    assert streams.taken() == edges
    synchronizer.unbind()


def test_every_reduction_is_waited_for_once(streams) -> None:
    """Handles were kept in a list that stayed empty, and waiting for them did nothing.

    pytorch/pytorch#122807, NVIDIA/apex#1847
    """
    group = parameters(3)
    with GradientSynchronizer([[each] for each in group], 1, 1) as synchronizer:
        for _ in range(2):
            for each in group:
                accumulate(each)
            streams.taken()
            synchronizer.wait()
            edges = ["work.wait on side"] * 3 + ["main waits for side"]
            assert streams.taken() == edges
            synchronizer.zero_grad()


def test_writers_of_an_earlier_step_are_forgotten(streams) -> None:
    (a,) = parameters(1)
    with GradientSynchronizer([[a]], 1, 1) as synchronizer:
        with streams.on("x"):
            accumulate(a)
        synchronizer.wait()
        with streams.on("z"):
            synchronizer.zero_grad()
        streams.taken()
        accumulate(a)
        edges = ["side waits for z", "side waits for main", "all_reduce on side"]
        assert streams.taken() == edges
        synchronizer.wait()


@pytest.mark.parametrize("scale", [None, 2])
def test_wait_orders_the_stream_it_is_called_on(streams, scale) -> None:
    (a,) = parameters(1)
    with GradientSynchronizer([[a]], 1, 1) as synchronizer:
        accumulate(a)
        streams.taken()
        with streams.on("optimizer"):
            synchronizer.wait(scale=scale)
        assert streams.taken() == ["work.wait on side", "optimizer waits for side"]
        synchronizer.wait()
        assert streams.taken() == ["main waits for side"]


@pytest.mark.parametrize(
    ("written", "call", "edges"),
    [
        (
            "mul_",
            lambda sums: sums.scale_grads(3),
            ["x waits for side", "mul_ on x", "side waits for x"],
        ),
        ("", lambda sums: sums.grad_norm(), ["x waits for side", "side waits for x"]),
        ("zero_", lambda sums: sums.zero_grad(), ["x waits for side", "zero_ on x"]),
    ],
    ids=["product", "norm", "zeros"],
)
def test_a_stream_waits_for_the_sums_before_it_uses_them(
    streams, monkeypatch: pytest.MonkeyPatch, written: str, call, edges: list[str]
) -> None:
    """On a stream that is not the one of `wait()`."""
    (a,) = parameters(1)
    with GradientSynchronizer([[a]], 1, 1) as synchronizer:
        accumulate(a)
        synchronizer.wait()
        streams.taken()
        if written:
            monkeypatch.setattr(torch.Tensor, written, streams.logged(written))
        with streams.on("x"):
            call(synchronizer)
        assert streams.taken() == edges


def test_the_side_stream_multiplies_by_a_scale_once_that_is_computed(streams) -> None:
    """The scale stays on its device; the host would have read a scale on a CPU."""
    (a,) = parameters(1)
    with GradientSynchronizer([[a]], 1, 1) as synchronizer:
        accumulate(a)
        streams.taken()
        with streams.on("optimizer"):
            synchronizer._sequence.finish(drop_unused=False, scale=torch.tensor(2.0))
        assert streams.taken() == [
            "side waits for optimizer",
            "work.wait on side",
            "optimizer waits for side",
        ]


def test_a_comm_hook_runs_on_the_side_stream_and_is_waited_for_there(streams) -> None:
    def hook(bucket: HookBucket) -> SimpleNamespace:
        streams.log.append(f"hook on {streams._current}")
        return SimpleNamespace(wait=lambda: wait(bucket.buffer), then=None)

    def wait(buffer: torch.Tensor) -> torch.Tensor:
        streams.log.append(f"future.wait on {streams._current}")
        return buffer

    (a,) = parameters(1)
    config = SynchronizerConfig(comm_hook=hook)
    with GradientSynchronizer([[a]], 1, 1, config=config) as synchronizer:
        with streams.on("x"):
            accumulate(a)
        assert streams.taken() == [
            "side waits for main",
            "side waits for x",
            "hook on side",
        ]
        synchronizer.wait()
        assert streams.taken() == ["future.wait on side", "main waits for side"]


def test_memory_returns_to_its_stream_after_everybody_who_used_it(streams) -> None:
    (a,) = parameters(1)
    synchronizer = GradientSynchronizer([[a]], 1, 1)
    with streams.on("allocation"):
        synchronizer.bind()
    with streams.on("x"):
        accumulate(a)
    streams.taken()
    synchronizer.unbind()
    assert streams.taken() == [
        "work.wait on side",
        "allocation waits for side",
        "allocation waits for allocation",
        "allocation waits for x",
        "allocation waits for main",
    ]


def test_a_failing_reduction_is_reported_and_unbind_still_releases_all(
    streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("connection closed by peer")

    monkeypatch.setattr(dist, "all_reduce", lambda _, **__: SimpleNamespace(wait=fail))
    a, b = parameters(2)
    synchronizer = GradientSynchronizer([[a], [b]], 1, 1)
    synchronizer.bind()
    accumulate(b)
    accumulate(a)
    with pytest.raises(ReductionFailedError) as caught:
        synchronizer.wait()
    assert str(caught.value).splitlines() == [
        "the reduction of bucket 0 failed",
        "  expected: every rank to take part, and none to leave",
        "  got:      RuntimeError: connection closed by peer",
        "  where:    rank 0 of 2, bucket 0",
        "  hint: call unbind() on every rank, and look for a rank that failed earlier",
    ]
    with pytest.raises(ReductionFailedError, match="bucket 1"):
        synchronizer.unbind()
    assert (a.grad, b.grad) == (None, None)
    accumulate(a)
    synchronizer.unbind()


def test_a_gradient_taken_over_outlives_the_stream_that_copies_it(streams) -> None:
    """The gradient may be memory of another stream, and the view takes its last reference."""
    (a,) = parameters(1)
    with GradientSynchronizer([[a]], 1, 1) as synchronizer:
        assert a.grad is not None
        a.grad = a.grad.clone()  # as `module.to(device)` does
        with streams.on("x"):
            accumulate(a)
        assert streams.taken() == [
            "side waits for main",
            "side waits for x",
            "memory outlives side",
            "all_reduce on side",
        ]
        synchronizer.wait()
