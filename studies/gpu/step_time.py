"""The time of one step beside DDP, in a world of one rank."""

import statistics
import time
from collections.abc import Callable

import torch

from gpu.one_rank import world_of_one
from gpu.part import Part, Result
from gpu.training import step_of_ddp, step_of_ours

ROUNDS = 30


def run(device: torch.device, rounds: int = ROUNDS) -> Result:
    """Take turns with DDP, and compare gradients and times."""
    with world_of_one(device):
        step, synchronizer, model = step_of_ours(device)
        peer, other = step_of_ddp(device)
        ratios: list[float] = []
        for _ in range(rounds):
            synchronizer.zero_grad()
            other.zero_grad()
            ratios.append(_seconds(step, device) / _seconds(peer, device))
        pairs = zip(model.parameters(), other.parameters(), strict=True)
        wrong = [
            f"parameter {number} has another gradient than under DDP"
            for number, (own, theirs) in enumerate(pairs)
            if own.grad is None
            or theirs.grad is None
            or not torch.equal(own.grad, theirs.grad)
        ]
        synchronizer.unbind()
    middle = statistics.median(ratios[rounds // 3 :])
    summary = f"median of {rounds} steps: {middle:.2f} times the time of DDP"
    return Result.of(wrong, device, summary)


def _seconds(step: Callable[[], None], device: torch.device) -> float:
    module = torch.get_device_module(device)
    module.synchronize()
    start = time.perf_counter()
    step()
    module.synchronize()
    return time.perf_counter() - start


PART = Part(
    "step-time",
    "One step beside DDP",
    "Six linear layers, world of one rank: the ratio of times, and equal gradients. One rank "
    "has no message to hide behind a backward, so the ratio is that of the work beside it.",
    run,
)
