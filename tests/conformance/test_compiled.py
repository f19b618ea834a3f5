"""A model that torch compiles."""

from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import nn
from training import assert_averages, inputs_of, layers
from wrappers import BySynchronizer, ours


@pytest.mark.nightly  # the compiler takes ten seconds
def test_a_compiled_forward(play) -> None:
    """`aot_eager` differentiates ahead of time as the default does, and generates no code."""

    def wrap(model: nn.Module, **options: object) -> BySynchronizer:
        wrapped = ours(model, **options)
        wrapped.forward = torch.compile(model, backend="aot_eager")
        return wrapped

    def losses(model, rank) -> Iterator[torch.Tensor]:
        yield model(inputs_of(rank, 10, 10)).sum()

    assert_averages(play, wrap, partial(layers, 10, 10), losses, losses)
