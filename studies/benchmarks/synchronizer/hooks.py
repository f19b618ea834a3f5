"""The cost of the synchronizer's hook for one gradient, in microseconds.

One process, ordinary parameters, no communication. The graph is one node that passes a
gradient to every parameter, so the backward is almost only accumulation and hooks. The
time of the same backward with an empty hook is subtracted: a call of Python by autograd is
not our cost, the body of the hook is.
"""

import time
from collections.abc import Callable

import torch
from torch import nn

from studies.benchmarks.measure import Measure, summary
from studies.benchmarks.rounds import Contestant, Rounds, Times, take_turns
from studies.benchmarks.synchronizer.ranks import run_on_ranks
from studies.benchmarks.synchronizer.sizes import Sizes
from studies.benchmarks.synchronizer.steps import OURS
from syncverify.synchronizer import GradientSynchronizer

EMPTY = "empty hook"
TARGET_US = 1.5
PARAMETER_NUMEL = 64
# Hooks in one round, over several backwards: one backward of 50 hooks is too short to time.
HOOKS_A_ROUND = 5000


def measure_hooks(sizes: Sizes, rounds: Rounds) -> list[Measure]:
    """Time the hook at all numbers of parameters."""
    (times_by_count,) = run_on_ranks(1, _times_by_count, sizes, rounds)
    return [_measure(count, times) for count, times in times_by_count.items()]


def _measure(count: int, times: Times) -> Measure:
    pairs = zip(times[OURS], times[EMPTY], strict=True)
    hooks = _num_backwards(count) * count
    return summary(
        ("hook_us", str(count)),
        [1e6 * (ours - empty) / hooks for ours, empty in pairs],
        times,
        peer=EMPTY,
        target=TARGET_US,
        unit="us",
    )


def _times_by_count(sizes: Sizes, rounds: Rounds) -> dict[int, Times]:
    return {
        count: take_turns({OURS: _synchronized(count), EMPTY: _empty(count)}, rounds)
        for count in sizes.hook_counts
    }


def _synchronized(count: int) -> Contestant:
    parameters = _parameters(count)
    synchronizer = GradientSynchronizer([parameters], 25, 1)
    synchronizer.bind()

    def start_next_step() -> None:
        synchronizer.wait()
        synchronizer.zero_grad()

    return _backwards(parameters, start_next_step)


def _empty(count: int) -> Contestant:
    parameters = _parameters(count)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
        parameter.register_post_accumulate_grad_hook(lambda _: None)
    return _backwards(parameters, lambda: None)


def _parameters(count: int) -> list[nn.Parameter]:
    return [nn.Parameter(torch.ones(PARAMETER_NUMEL)) for _ in range(count)]


def _backwards(
    parameters: list[nn.Parameter], start_next_step: Callable[[], None]
) -> Contestant:
    """Time backwards only, as many as `HOOKS_A_ROUND` takes."""

    def run() -> float:
        seconds = 0.0
        for _ in range(_num_backwards(len(parameters))):
            loss = torch.stack([*parameters]).sum()
            start = time.perf_counter()
            loss.backward()
            seconds += time.perf_counter() - start
            start_next_step()
        return seconds

    return run


def _num_backwards(count: int) -> int:
    return max(1, HOOKS_A_ROUND // count)
