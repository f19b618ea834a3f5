"""A model that torch compiles."""

from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import nn

from syncverify.synchronizer import (
    GradientSynchronizer,
    LifecycleError,
    StepFailedError,
)
from tests.conformance.training import assert_averages, inputs_of, layers
from tests.conformance.wrappers import BySynchronizer, ours


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


@pytest.mark.nightly  # the compiler takes seconds
@pytest.mark.parametrize("backend", ["none", "eager"])
def test_a_backward_by_compiled_autograd_is_refused(backend: str) -> None:
    """Also where an earlier backward of the step was right."""
    from torch._dynamo.compiled_autograd import _enable as compiled_autograd

    compiler = torch.compile(backend=backend) if backend != "none" else lambda it: it
    model = layers(3, 3)
    with GradientSynchronizer.from_module(model, 1, 2) as synchronizer:
        model(inputs_of(0, 1, 3)).sum().backward()
        with (
            pytest.raises(LifecycleError, match="outside of torch"),
            compiled_autograd(compiler),
        ):
            model(inputs_of(0, 1, 3)).sum().backward()
        with pytest.raises(StepFailedError):
            synchronizer.wait()
