"""Losses that contain `.grad` of an earlier backward of the step."""

import pytest
import torch
from torch import nn

from syncverify.synchronizer import (
    GradientSynchronizer,
    SynchronizerConfig,
    SynchronizerError,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:Using backward.. with create_graph"),
    pytest.mark.usefixtures("one_rank"),
]


def cube(parameter: torch.Tensor) -> torch.Tensor:
    return (parameter**3).sum()


def penalized(parameter: nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None
    return (parameter * 5).sum() + (parameter.grad**2).sum() / 2


def in_plain_torch() -> torch.Tensor:
    parameter = nn.Parameter(torch.tensor([1.0, 2.0]))
    cube(parameter).backward(create_graph=True)
    penalized(parameter).backward()
    assert parameter.grad is not None
    return parameter.grad.detach()


@pytest.mark.parametrize("set_to_none", [False, True])
def test_a_penalty_is_differentiated(*, set_to_none: bool) -> None:
    parameter = nn.Parameter(torch.tensor([1.0, 2.0]))
    with GradientSynchronizer([[parameter]], 1, 2) as synchronizer:
        for _ in range(2):
            synchronizer.zero_grad(set_to_none=set_to_none)
            cube(parameter).backward(create_graph=True)
            penalized(parameter).backward()
            synchronizer.wait()
            assert torch.equal(parameter.grad, in_plain_torch())
            assert not parameter.grad.requires_grad


def test_a_gradient_with_a_graph_is_flushed_too() -> None:
    parameter = nn.Parameter(torch.tensor([1.0, 2.0]))
    with GradientSynchronizer([[parameter]], 1, 2) as synchronizer:
        synchronizer.zero_grad(set_to_none=True)
        cube(parameter).backward(create_graph=True)
        synchronizer.flush()
        synchronizer.wait()
        assert parameter.grad.tolist() == [3, 12]
        assert not parameter.grad.requires_grad


@pytest.mark.parametrize("unused", ["error", "zeros", "keep_none"])
def test_a_penalty_of_what_is_reduced_is_refused(unused: str) -> None:
    """The last backward that the step requires starts the reduction."""
    parameter = nn.Parameter(torch.tensor([1.0, 2.0]))
    config = SynchronizerConfig(unused=unused)
    with GradientSynchronizer([[parameter]], 1, 1, config=config) as synchronizer:
        cube(parameter).backward(create_graph=True)
        with pytest.raises(SynchronizerError):
            penalized(parameter).backward()
        with pytest.raises(SynchronizerError):
            synchronizer.wait()
