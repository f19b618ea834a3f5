"""How much communication a synchronizer leaves exposed, over a simulated link.

Exposed is what a step takes longer than one of the same model that does not communicate.
Both sides talk to the same process group (`link_group`) in the same process, and nobody
else uses the cores. This is the one place where overlap can be judged without GPUs.
"""

import statistics

import torch.distributed as dist

from benchmarks.measure import Measure, summary
from benchmarks.rounds import Contestant, Rounds, Times, take_turns
from benchmarks.synchronizer.link_group import LinkProcessGroup, make_group
from benchmarks.synchronizer.ranks import run_on_ranks
from benchmarks.synchronizer.sizes import Sizes
from benchmarks.synchronizer.steps import alone, ddp, synchronized

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
    size = sizes.link_model
    return {
        OURS: synchronized(size, BUCKET_MIB, group),
        DDP: ddp(size, BUCKET_MIB, group, set_to_none=False),
        ALONE: alone(size),
    }
