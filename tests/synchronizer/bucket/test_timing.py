"""Times of each bucket, and ranges in a profile."""

import itertools
import json

import pytest
import torch
import torch.distributed as dist
from torch import nn

from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig

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


def times(sums: GradientSynchronizer) -> list[tuple[int | None, ...] | None]:
    buckets = sums.logging_data()["buckets"]
    return [each["times"] and tuple(each["times"].values()) for each in buckets]


def test_times_tell_what_happened_in_which_order(two_ranks, clock) -> None:
    sums, (a, b) = bound_on(dist.group.WORLD, rebuild=False)
    assert times(sums) == [None, None]
    for start in (1, 7):
        backward(a, b)
        backward(a)
        assert times(sums)[1] == (start, None, None)
        backward(b)  # bucket 1, with `a`, was ready first and is launched second
        sums.wait()
        sums.wait()
        expected = [(start + 1, start + 2, start + 4), (start, start + 3, start + 5)]
        assert times(sums) == expected
        sums.zero_grad()
        backward(a, b)
        assert times(sums) == expected
        sums.zero_grad()
    sums.unbind()


def test_a_bucket_that_stays_local_is_never_launched(two_ranks, clock) -> None:
    sums, (a, b) = bound_on(None, allow_local_only=True)
    backward(a, b)
    sums.flush()
    sums.wait()
    assert times(sums) == [(1, None, 3), (2, None, 4)]
    sums.unbind()


def test_a_log_has_the_plan_and_can_be_written_as_json(two_ranks) -> None:
    sums, _ = bound_on(dist.group.WORLD)
    logged = json.loads(json.dumps(sums.logging_data()))
    sums.unbind()
    assert logged["is_rebuilt"] is False
    bucket = logged["buckets"][0]
    assert (bucket["index"], bucket["ranks"], bucket["wire_bytes"]) == (0, [0, 1], 1024)


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
