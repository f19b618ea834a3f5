"""A training step under the synchronizer, beside DDP, beside a limit, and beside a naive loop.

Note [The measured step]
~~~~~~~~~~~~~~~~~~~~~~~~
A step is forward, backward, the mean of every gradient over the ranks, and `zero_grad()`.
No optimizer: it would take the same time for all contestants.

Gradients start a step as zeros or as None, for all contestants alike. Our `zero_grad()` leaves
zeros. So does `optimizer.zero_grad(set_to_none=False)` of the others, in one foreach call, which
is faster than that of the module. With `set_to_none=True` nothing is filled with zeros, and
backward adds nothing to zeros; our synchronizer and DDP then copy each gradient into a bucket.
DDP divides before the sum, and ours after it, as they do by default.

The limit is the same backward without any synchronizer, and then one all-reduce of as many
bytes: no hook, no copy, no division, and no overlap, which on CPU hides nothing where the
cores are busy.

Where a C++ compiler and ninja are, each model is also trained with `gradient_hook="cpp"`.
"""

import gc
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import cast

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils import cpp_extension

from studies.benchmarks.measure import Measure, ratio
from studies.benchmarks.rounds import Contestant, Rounds, Times, take_turns, timed
from studies.benchmarks.synchronizer.models import (
    Training,
    averaging,
    make_input,
    make_model,
    ordinary_training,
)
from studies.benchmarks.synchronizer.ranks import times_of_ranks
from studies.benchmarks.synchronizer.sizes import ModelSize, Sizes
from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig
from syncverify.synchronizer.backward.collector import extension
from syncverify.synchronizer.contract.arguments import GradientHook

NUM_RANKS = 2
OURS = "GradientSynchronizer"
DDP = "DDP"
NAIVE = "one all-reduce for each parameter"
ALONE = "no synchronizer"
LIMIT = "one bare all-reduce"
# Targets are ratios: the time of our step, divided by that of a peer, is at most the target.
STEP_TARGET = 1.0  # to DDP; a model that misses it is to meet that to LIMIT
LIMIT_TARGET = 1.05
NAIVE_TARGET = 0.05


def measure_steps(sizes: Sizes, rounds: Rounds) -> list[Measure]:
    """Compare steps on all models, with gradients that start as zeros and as None."""
    if _can_compile():
        extension()  # here, because a rank that compiles looks as if it hung
    zeros, nones = (
        times_of_ranks(
            NUM_RANKS, partial(_times_by_model, set_to_none=set_to_none), sizes, rounds
        )
        for set_to_none in (False, True)
    )
    measures = [
        ratio((key, label), times, OURS, peer, target=target)
        for key, times_by_model, peer, target in (
            ("step_vs_ddp", zeros, DDP, STEP_TARGET),
            ("step_vs_ddp_to_none", nones, DDP, STEP_TARGET),
            ("step_vs_limit", zeros, LIMIT, LIMIT_TARGET),
            ("step_vs_limit_to_none", nones, LIMIT, LIMIT_TARGET),
        )
        for label, times in times_by_model.items()
    ]
    key = ("step_vs_naive_small",)
    return [*measures, ratio(key, zeros["small"], OURS, NAIVE, target=NAIVE_TARGET)]


def _times_by_model(
    sizes: Sizes, rounds: Rounds, *, set_to_none: bool
) -> dict[str, Times]:
    """Time the steps on each model, and once more with the hook in C++ where it compiles.

    Args:
        sizes: Models and bucket sizes.
        rounds: Numbers of rounds.
        set_to_none: Whether gradients start a step as None, instead of as zeros.

    Returns:
        Times of each contestant, by model.
    """
    runs: list[tuple[str, str, GradientHook]] = [(m, m, "python") for m in sizes.models]
    if _can_compile():
        runs += [(f"{m}, hook in C++", m, "cpp") for m in sizes.models]
    times: dict[str, Times] = {}
    for name, label, gradient_hook in runs:
        gc.collect()  # a synchronizer that is still bound would delay the launches of the next
        mean = replace(averaging(dist.group.WORLD), gradient_hook=gradient_hook)
        contestants = _contestants(
            name, sizes.models[label], sizes.bucket_mib, mean, set_to_none=set_to_none
        )
        times[name] = take_turns(contestants, rounds, line_up=dist.barrier)
        contestants.clear()
    return times


def _can_compile() -> bool:
    compiler = shutil.which(cpp_extension.get_cxx_compiler())
    return compiler is not None and cpp_extension.is_ninja_available()


def _contestants(
    label: str,
    size: ModelSize,
    bucket_mib: float,
    mean: SynchronizerConfig,
    *,
    set_to_none: bool,
) -> dict[str, Contestant]:
    # One synchronizer alone: two that are bound would start their sums in `wait()`.
    training = ordinary_training(size)
    contestants = {
        OURS: synchronized(training, bucket_mib, mean, set_to_none=set_to_none),
        DDP: ddp(size, bucket_mib, dist.group.WORLD, set_to_none=set_to_none),
        # In no ratio; its median in the document shows what communication costs.
        ALONE: alone(size, set_to_none=set_to_none),
        LIMIT: alone(size, exchange=one_message(size), set_to_none=set_to_none),
    }
    if label == "small" and not set_to_none:  # where one message a parameter costs most
        contestants[NAIVE] = alone(size, exchange=_average)
    return contestants


def synchronized(
    training: Training,
    bucket_mib: float,
    config: SynchronizerConfig,
    *,
    set_to_none: bool = False,
) -> Contestant:
    """Train under our synchronizer."""
    synchronizer = GradientSynchronizer(
        [training.parameters], bucket_mib, 1, config=config
    )
    synchronizer.bind()

    def step() -> None:
        training.backward()
        synchronizer.wait()
        synchronizer.zero_grad(set_to_none=set_to_none)

    return timed(step)


def ddp(
    size: ModelSize,
    bucket_mib: float,
    group: dist.ProcessGroup | None,
    *,
    set_to_none: bool,
) -> Contestant:
    """Train under DDP, averaging over a group."""
    x = make_input(size)
    parallel = DistributedDataParallel(
        make_model(size),
        process_group=group,
        bucket_cap_mb=bucket_mib,
        gradient_as_bucket_view=True,
        static_graph=True,
    )
    zero = _zeroing(list(parallel.parameters()), set_to_none=set_to_none)

    def step() -> None:
        parallel(x).sum().backward()
        zero()

    return timed(step)


def _average(parameters: list[nn.Parameter]) -> None:
    for parameter in parameters:
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad)
        parameter.grad.mul_(1 / NUM_RANKS)


def one_message(size: ModelSize) -> Callable[[list[nn.Parameter]], None]:
    """Sum as many bytes as the gradients have, but not the gradients: no copy, no mean."""
    buffer = torch.zeros(size.num_layers * size.width**2)
    return lambda _: cast("None", dist.all_reduce(buffer))


def alone(
    size: ModelSize,
    exchange: Callable[[list[nn.Parameter]], None] = lambda _: None,
    *,
    set_to_none: bool = False,
) -> Contestant:
    """Train without a synchronizer; by default without communication as well."""
    training = ordinary_training(size)
    zero = _zeroing(training.parameters, set_to_none=set_to_none)

    def step() -> None:
        training.backward()
        exchange(training.parameters)
        zero()

    return timed(step)


def _zeroing(
    parameters: list[nn.Parameter], *, set_to_none: bool
) -> Callable[[], None]:
    # The usual start of the next step.
    optimizer = torch.optim.SGD(parameters, foreach=True)
    return lambda: optimizer.zero_grad(set_to_none=set_to_none)
