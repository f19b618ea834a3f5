"""Gradients that the training program adds by hand, as zero-bubble schedules do."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from syncverify.synchronizer import (
    GradientSynchronizer,
    InvalidArgumentError,
    SynchronizerConfig,
)


def add(parameter: nn.Parameter, value: float) -> None:
    with torch.no_grad():
        if parameter.grad is None:
            parameter.grad = torch.full_like(parameter, value)
        else:
            parameter.grad += value


@pytest.mark.parametrize("set_to_none", [False, True])
def test_marked_gradients_are_summed_with_those_of_backward(
    ranks, *, set_to_none: bool
) -> None:
    def program(rank: int) -> list[list[float]]:
        by_hand, by_backward = (nn.Parameter(torch.zeros(2)) for _ in range(2))
        config = SynchronizerConfig(process_group=dist.group.WORLD)
        group = [by_hand, by_backward]
        found = []
        with GradientSynchronizer([group], 1, 2, config=config) as synchronizer:
            for _ in range(2):
                synchronizer.zero_grad(set_to_none=set_to_none)
                for micro_batch in range(2):
                    (by_backward.sum() * (rank + 1)).backward()
                    add(by_hand, 10.0**micro_batch)
                    synchronizer.mark_ready(by_hand)
                synchronizer.wait()
                found.append([each.grad[0].item() for each in group])
        return found

    assert ranks.run(2, program) == [[[22, 6]] * 2] * 2


def test_the_sum_starts_with_the_last_mark(two_ranks, launches) -> None:
    pair = [nn.Parameter(torch.zeros(2)) for _ in range(2)]
    config = SynchronizerConfig(process_group=dist.group.WORLD)
    with GradientSynchronizer([pair], 1, 1, config=config) as synchronizer:
        for parameter in pair:
            assert not launches
            add(parameter, 1)
            synchronizer.mark_ready(parameter)
        assert len(launches) == 1
        synchronizer.wait()


def test_a_mark_in_no_sync_counts_for_nothing(one_rank) -> None:
    parameter = nn.Parameter(torch.zeros(2))
    with GradientSynchronizer([[parameter]], 1, 1) as synchronizer:
        with synchronizer.no_sync():
            add(parameter, 1)
            synchronizer.mark_ready(parameter)
        add(parameter, 2)
        synchronizer.mark_ready(parameter)
        synchronizer.wait()
        assert parameter.grad.tolist() == [3, 3]


def test_a_parameter_without_a_place_is_refused_and_nothing_has_changed(
    one_rank,
) -> None:
    parameter, stranger = (nn.Parameter(torch.zeros(2)) for _ in range(2))
    with GradientSynchronizer([[parameter]], 1, 1) as synchronizer:
        with pytest.raises(InvalidArgumentError, match="no place in a bucket"):
            synchronizer.mark_ready(parameter, stranger)
        synchronizer.mark_ready(parameter)
        synchronizer.wait()
