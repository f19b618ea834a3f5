"""Optimizers that step inside of backward, with gradients that are not reduced yet."""

import pytest
import torch
from torch import nn

from syncverify.synchronizer import ReplacedGradientError
from tests.conformance.training import LEARNING_RATE, inputs_of, layers, refused
from tests.conformance.wrappers import ours


@pytest.mark.parametrize("is_bound_first", [False, True])
def test_a_step_in_backward_that_drops_gradients_is_refused(
    play, is_bound_first
) -> None:
    """torch's `_apply_optimizer_in_backward` steps so; it knows DDP, and waits for it."""

    def program(rank: int) -> None:
        model = layers(3, 3, 3)
        bound = [ours(model)] if is_bound_first else []
        for parameter in model.parameters():
            step_in_backward(parameter)
        bound = bound or [ours(model)]
        with refused(ReplacedGradientError, "1.bias"):
            model(inputs_of(rank, 10, 3)).sum().backward()

    play(2, program)


def step_in_backward(parameter: nn.Parameter) -> None:
    """Let an optimizer step as soon as a gradient is there, and drop the gradient."""
    optimizer = torch.optim.SGD([parameter], lr=LEARNING_RATE)
    node = parameter.view_as(parameter).grad_fn.next_functions[0][0]
    parameter.kept_node = node  # or the hook goes with the node

    def step(*_: object) -> None:
        optimizer.step()
        parameter.grad = None

    node.register_hook(step)
