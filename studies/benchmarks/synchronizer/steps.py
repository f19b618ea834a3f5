"""A training step under the synchronizer, under DDP, and with an all-reduce a parameter.

Note [The measured step]
~~~~~~~~~~~~~~~~~~~~~~~~
A step is forward, backward, the mean of every gradient over the ranks, and `zero_grad()`.
No optimizer: it would take the same time for all contestants.

Gradients start a step as zeros or as None, equally for both contestants. Our `zero_grad()`
leaves zeros. So does `optimizer.zero_grad(set_to_none=False)` for DDP, in one foreach call,
which is faster than that of the module. `set_to_none=True` saves both the zeros and the
sum, but not a copy. Both divide before the sum, as DDP always does.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.measure import Measure, ratio
from benchmarks.rounds import Contestant, Rounds, Times, take_turns, timed
from benchmarks.synchronizer.models import (
    Training,
    averaging,
    make_input,
    make_model,
    plain_training,
)
from benchmarks.synchronizer.ranks import times_of_ranks
from benchmarks.synchronizer.sizes import ModelSize, Sizes
from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig

NUM_RANKS = 2
OURS = "GradientSynchronizer"
OURS_NONE = "GradientSynchronizer, grads to None"
DDP = "DDP"
DDP_NONE = "DDP, grads to None"
NAIVE = "all-reduce a parameter"
ALONE = "no synchronizer"
STEP_TARGET = 1.0
NAIVE_TARGET = 0.05


def measure_steps(sizes: Sizes, rounds: Rounds) -> list[Measure]:
    """Compare steps on all models."""
    times = times_of_ranks(NUM_RANKS, _times_by_model, sizes, rounds)
    measures = [
        ratio((key, label), of, ours, peer, target=STEP_TARGET)
        for key, ours, peer in (
            ("step_vs_ddp", OURS, DDP),
            ("step_vs_ddp_to_none", OURS_NONE, DDP_NONE),
        )
        for label, of in times.items()
    ]
    key = ("step_vs_naive_small",)
    return [*measures, ratio(key, times["small"], OURS, NAIVE, target=NAIVE_TARGET)]


def _times_by_model(sizes: Sizes, rounds: Rounds) -> dict[str, Times]:
    return {
        label: take_turns(
            _contestants(label, size, sizes.bucket_mib), rounds, line_up=dist.barrier
        )
        for label, size in sizes.models.items()
    }


def _contestants(
    label: str, size: ModelSize, bucket_mib: float
) -> dict[str, Contestant]:
    zeros, nones = plain_training(size), plain_training(size)
    mean = averaging(dist.group.WORLD)
    contestants = {
        OURS: synchronized(zeros, bucket_mib, mean),
        OURS_NONE: synchronized(nones, bucket_mib, mean, set_to_none=True),
        DDP: ddp(size, bucket_mib, dist.group.WORLD, set_to_none=False),
        DDP_NONE: ddp(size, bucket_mib, dist.group.WORLD, set_to_none=True),
        ALONE: alone(size),
    }
    if label == "small":  # where one message a parameter costs most
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


def alone(
    size: ModelSize, exchange: Callable[[list[nn.Parameter]], None] = lambda _: None
) -> Contestant:
    """Train without a synchronizer; by default without communication as well."""
    training = plain_training(size)
    zero = _zeroing(training.parameters, set_to_none=False)

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
