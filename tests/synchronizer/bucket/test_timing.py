"""Times of each bucket, and ranges in a profile."""

import itertools

import pytest
import torch
import torch.distributed as dist
from torch import nn

from syncverify.synchronizer import (
    BucketTiming,
    GradientSynchronizer,
    SynchronizerConfig,
)

KIB_MB = 2**-10


def bound_on(
    group: dist.ProcessGroup | None, **options
) -> tuple[GradientSynchronizer, list[nn.Parameter]]:
    weights = [nn.Parameter(torch.zeros(256)) for _ in range(2)]
    config = SynchronizerConfig(process_group=group, **options)
    sums = GradientSynchronizer([weights], KIB_MB, 2, config=config)
    sums.bind()
    return sums, weights


def backward(*weights: nn.Parameter) -> None:
    torch.stack(weights).sum().backward()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(1)
    monkeypatch.setattr("time.perf_counter_ns", lambda: next(ticks))


def test_times_tell_what_happened_in_which_order(two_ranks, clock) -> None:
    sums, (a, b) = bound_on(dist.group.WORLD, timings=True, rebuild=False)
    assert sums.timings() == ()
    for start in (1, 7):
        backward(a, b)
        backward(a)
        backward(b)  # bucket 1, with `a`, was ready first and is launched second
        sums.wait()
        sums.wait()
        expected = (
            BucketTiming(0, 1024, start + 1, start + 2, start + 4),
            BucketTiming(1, 1024, start, start + 3, start + 5),
        )
        assert sums.timings() == expected
        sums.zero_grad()
        backward(a, b)
        assert sums.timings() == expected
        sums.zero_grad()
    sums.unbind()


def test_times_are_kept_when_buckets_are_cut_anew(two_ranks, clock) -> None:
    sums, (a, b) = bound_on(dist.group.WORLD, timings=True)
    for _ in range(2):
        backward(a)
        backward(b)
    sums.wait()
    before = sums.timings()
    sums.zero_grad()
    assert sums._sequence.is_rebuilt
    assert sums.timings() == before
    assert len(before) == 2
    sums.unbind()


def test_a_bucket_that_stays_local_is_never_launched(two_ranks, clock) -> None:
    sums, (a, b) = bound_on(None, timings=True)
    backward(a, b)
    sums.flush()
    sums.wait()
    assert sums.timings() == (
        BucketTiming(0, 1024, 1, None, 3),
        BucketTiming(1, 1024, 2, None, 4),
    )
    sums.unbind()


def test_no_clock_is_read_unless_asked(two_ranks, monkeypatch) -> None:
    monkeypatch.setattr("time.perf_counter_ns", None)
    sums, (a, b) = bound_on(dist.group.WORLD)
    backward(a, b)
    sums.flush()
    sums.wait()
    assert sums.timings() == ()
    sums.unbind()


def test_a_profile_names_the_buckets(two_ranks) -> None:
    sums, (a, b) = bound_on(dist.group.WORLD)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as p:
        backward(a, b)
        backward(a, b)
        sums.wait()
    sums.unbind()
    ours = [event for event in p.events() if "GradientSynchronizer" in event.name]
    ours.sort(key=lambda event: event.time_range.start)
    assert [event.name for event in ours] == [
        "GradientSynchronizer launch bucket 0",
        "GradientSynchronizer launch bucket 1",
        "GradientSynchronizer finish bucket 0",
        "GradientSynchronizer finish bucket 1",
    ]


def test_nothing_is_recorded_where_nobody_profiles(two_ranks, monkeypatch) -> None:
    monkeypatch.setattr("torch.autograd.profiler.record_function", None)
    sums, (a, b) = bound_on(dist.group.WORLD)
    backward(a, b)
    backward(a, b)
    sums.wait()
    sums.unbind()
