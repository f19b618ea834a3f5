"""The time of one step beside DDP, in a world of one rank."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import NamedTuple

import torch

from studies.documents import table
from studies.gpu.one_rank import world_of_one
from studies.gpu.part import Part, Result
from studies.gpu.training import LARGE, SMALL, Size, step_of_ddp, step_of_ours

ROUNDS = 30


class Times(NamedTuple):
    """Seconds of one step under one synchronizer: until all is queued, and until all is done."""

    queued: float
    done: float


class Compared(NamedTuple):
    """Ours beside DDP on one size: times of each round, and what is wrong with gradients."""

    ours: list[Times]
    theirs: list[Times]
    wrong: list[str]


def run(device: torch.device, rounds: int = ROUNDS) -> Result:
    """Take turns with DDP, and compare gradients and times."""
    sizes = (SMALL, LARGE) if device.type == "cuda" else (SMALL,)
    with world_of_one(device):
        found = [(size, _compared(device, size, rounds)) for size in sizes]
    ratios = [_median_ratio(each, "done") for _, each in found]
    rows = [_row(size, each) for size, each in found]
    header = ("layers", "batch", "time of DDP", "ours", "time of the host", "ours")
    # The first third warms up: see `_compared`.
    summary = (
        f"median of the last {rounds - rounds // 3} of {rounds} steps: "
        f"{' and '.join(ratios)} times the time of DDP"
    )
    wrong = [line for _, each in found for line in each.wrong]
    result = Result.of(wrong, device, summary)
    return replace(result, lines=[*table(header, rows), "", *result.lines])


def _compared(device: torch.device, size: Size, rounds: int) -> Compared:
    step, synchronizer, model = step_of_ours(device, size)
    peer, other = step_of_ddp(device, size)
    ours, theirs = list[Times](), list[Times]()
    for _ in range(rounds):
        synchronizer.zero_grad()
        other.zero_grad()
        ours.append(_times(step, device))
        theirs.append(_times(peer, device))
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    wrong = [
        f"parameter {number} of {size} has a gradient different from that under DDP"
        for number, (own, their) in enumerate(pairs)
        if own.grad is None
        or their.grad is None
        or not torch.equal(own.grad, their.grad)
    ]
    synchronizer.unbind()
    steady = slice(rounds // 3, None)
    return Compared(ours[steady], theirs[steady], wrong)


def _row(size: Size, found: Compared) -> Sequence[str]:
    layers = f"{size.depth} of {size.width}"
    return (
        layers, str(size.batch), _milliseconds(found.theirs, "done"),
        _median_ratio(found, "done"), _milliseconds(found.theirs, "queued"),
        _median_ratio(found, "queued"),
    )  # fmt: skip


def _median_ratio(found: Compared, time: str) -> str:
    pairs = zip(found.ours, found.theirs, strict=True)
    ratios = [getattr(own, time) / getattr(their, time) for own, their in pairs]
    return f"{statistics.median(ratios):.2f}"


def _milliseconds(times: Sequence[Times], time: str) -> str:
    return f"{statistics.median(getattr(each, time) for each in times) * 1000:.2f} ms"


def _times(step: Callable[[], None], device: torch.device) -> Times:
    module = torch.get_device_module(device)
    module.synchronize()
    start = perf_counter()
    step()
    queued = perf_counter()
    module.synchronize()
    return Times(queued - start, perf_counter() - start)


PART = Part(
    "step-time",
    "One step beside DDP",
    "Linear layers, world of one rank: the ratio of times, and equal gradients. One rank "
    "has no message to hide behind a backward, so the ratio is that of the work beside it. "
    "On a GPU also layers whose kernels take longer than the host takes to queue them.",
    run,
)
