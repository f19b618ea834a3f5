"""Exposed communication of a synchronizer, over a simulated link.

Exposed communication is the time of a step minus that of a step of the same model without
communication. Both contestants use the same process group (`link_group`) in the same
process, and no other process uses the cores. This is the only measure of overlap without
GPUs.
"""

import statistics

import torch.distributed as dist

from studies.benchmarks.measure import Measure, summary
from studies.benchmarks.rounds import Contestant, Rounds, Times, take_turns
from studies.benchmarks.synchronizer.link_group import LinkProcessGroup, make_group
from studies.benchmarks.synchronizer.models import averaging, ordinary_training
from studies.benchmarks.synchronizer.ranks import run_on_ranks
from studies.benchmarks.synchronizer.sizes import LinkSize, Sizes
from studies.benchmarks.synchronizer.steps import (
    DDP,
    NUM_RANKS,
    OURS,
    alone,
    ddp,
    synchronized,
)

ALONE = "no communication"
BUCKET_MIB = 1.0


def measure_links(sizes: Sizes, rounds: Rounds) -> list[Measure]:
    """Compare exposed communication on each link."""
    times_by_link, _ = run_on_ranks(NUM_RANKS, _times_by_link, sizes, rounds)
    return [_measure(link, times_by_link[link.label]) for link in sizes.links]


def _measure(link: LinkSize, times: Times) -> Measure:
    key, target = ("exposed_vs_ddp", link.label), link.target
    ours, ddp = _exposed(times, OURS), statistics.median(_exposed(times, DDP))
    if ddp <= 0:
        return Measure(key, DDP, target, note="DDP exposed nothing")
    # Divided by the median, not round by round: a round of DDP may expose almost nothing.
    return summary(key, [each / ddp for each in ours], times, peer=DDP, target=target)


def _exposed(times: Times, name: str) -> list[float]:
    pairs = zip(times[name], times[ALONE], strict=True)
    return [seconds - alone for seconds, alone in pairs]


def _times_by_link(sizes: Sizes, rounds: Rounds) -> dict[str, Times]:
    group = make_group()
    contestants = _contestants(sizes, group)
    times: dict[str, Times] = {}
    if dist.get_rank() == 0:  # the other rank only helps to make the contestants
        for link in sizes.links:
            group.link = link
            times[link.label] = take_turns(contestants, rounds)
    return times


def _contestants(sizes: Sizes, group: LinkProcessGroup) -> dict[str, Contestant]:
    size = sizes.link_model
    return {
        OURS: synchronized(ordinary_training(size), BUCKET_MIB, averaging(group)),
        DDP: ddp(size, BUCKET_MIB, group, set_to_none=False),
        ALONE: alone(size),
    }
