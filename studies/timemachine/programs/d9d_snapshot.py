"""d9d's means of hidden states, handed from one stage of a pipeline to the next."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from d9d.module.block.hidden_states_aggregator.mean import HiddenStatesAggregatorMean

from studies.timemachine.comparing import check_equal


def draw(random: Random) -> dict[str, Any]:
    """Draw the number of hidden states that each stage collects."""
    return {
        "ranks": 1,
        "seed": random.randrange(1000),
        "stages": [random.randint(0, 2) for _ in range(random.randint(1, 4))],
    }


def program(rank: int, *, seed: int, stages: list[int]) -> None:
    """Compare the means that leave the last stage with those of all hidden states."""
    made = torch.Generator().manual_seed(seed)
    weight = torch.randn(3, generator=made, requires_grad=True)
    states = [torch.randn(2, 4, 3, generator=made) * weight for _ in range(sum(stages))]
    coming = iter(states)
    snapshot = None
    for number in stages:
        aggregator = HiddenStatesAggregatorMean(torch.ones(2, 4))
        for _ in range(number):
            aggregator.add_hidden_states(next(coming))
        snapshot = aggregator.pack_with_snapshot(snapshot)
    means = [each.mean(1) for each in states]
    expected = torch.stack(means) if means else torch.zeros(0)
    observed = torch.zeros(0) if snapshot is None else snapshot
    check_equal(f"means of hidden states on rank {rank}", observed, expected)
