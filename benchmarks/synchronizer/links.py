"""How much communication a synchronizer leaves exposed, over a simulated link.

Exposed is what a step takes longer than one of the same model that does not communicate.
Both sides talk to the same process group (`link_group`) in the same process, and nobody
else uses the cores. This is the one place where overlap can be judged without GPUs.
"""

import statistics

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks.synchronizer.link_group import LinkProcessGroup, make_group
from benchmarks.synchronizer.measure import Measure, summary
from benchmarks.synchronizer.models import (
    averaging,
    make_input,
    make_model,
    plain_training,
)
from benchmarks.synchronizer.ranks import run_on_ranks
from benchmarks.synchronizer.rounds import Contestant, Rounds, Times, take_turns, timed
from benchmarks.synchronizer.sizes import Sizes
from benchmarks.synchronizer.steps import zeroing
from synchronizer import GradientSynchronizer

NUM_RANKS = 2
OURS = "GradientSynchronizer"
DDP = "DDP"
ALONE = "no communication"
TARGET = 1.0
BUCKET_MIB = 1.0


def measure_links(sizes: Sizes, rounds: Rounds) -> list[Measure]:
    """Compare exposed communication on all links."""
    times_by_link, _ = run_on_ranks(NUM_RANKS, _times_by_link, sizes, rounds)
    return [_measure(label, times) for label, times in times_by_link.items()]


def _measure(label: str, times: Times) -> Measure:
    key = ("exposed_vs_ddp", label)
    ours, ddp = _exposed(times, OURS), statistics.median(_exposed(times, DDP))
    if ddp <= 0:
        return Measure(key, DDP, TARGET, note="DDP exposed nothing")
    # To the median and not round by round: a round may expose almost nothing.
    return summary(key, [each / ddp for each in ours], times, peer=DDP, target=TARGET)


def _exposed(times: Times, name: str) -> list[float]:
    pairs = zip(times[name], times[ALONE], strict=True)
    return [seconds - alone for seconds, alone in pairs]


def _times_by_link(sizes: Sizes, rounds: Rounds) -> dict[str, Times]:
    group = make_group()
    contestants = _contestants(sizes, group)
    times: dict[str, Times] = {}
    if dist.get_rank() == 0:  # the other rank was needed to make the contestants
        for link in sizes.links:
            group.link = link
            times[link.label] = take_turns(contestants, rounds)
    return times


def _contestants(sizes: Sizes, group: LinkProcessGroup) -> dict[str, Contestant]:
    return {
        OURS: _synchronized(sizes, group),
        DDP: _ddp(sizes, group),
        ALONE: _alone(sizes),
    }


def _synchronized(sizes: Sizes, group: LinkProcessGroup) -> Contestant:
    training = plain_training(sizes.link_model)
    synchronizer = GradientSynchronizer(
        [training.parameters], BUCKET_MIB, 1, config=averaging(group)
    )
    synchronizer.bind()

    def step() -> None:
        training.backward()
        synchronizer.wait()
        synchronizer.zero_grad()

    return timed(step)


def _ddp(sizes: Sizes, group: LinkProcessGroup) -> Contestant:
    x = make_input(sizes.link_model)
    parallel = DistributedDataParallel(
        make_model(sizes.link_model),
        process_group=group,
        bucket_cap_mb=BUCKET_MIB,
        gradient_as_bucket_view=True,
        static_graph=True,
    )
    zero = zeroing(list(parallel.parameters()), set_to_none=False)

    def step() -> None:
        parallel(x).sum().backward()
        zero()

    return timed(step)


def _alone(sizes: Sizes) -> Contestant:
    training = plain_training(sizes.link_model)
    zero = zeroing(training.parameters, set_to_none=False)

    def step() -> None:
        training.backward()
        zero()

    return timed(step)
