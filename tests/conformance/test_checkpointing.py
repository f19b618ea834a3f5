"""Layers that run their forward again in backward.

DDP takes reentrant checkpoints with a static graph only; here there is no difference.
"""

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.conformance.training import assert_averages, inputs_of, of


class Checkpointed(nn.Module):
    """Two layers, and checkpoints of the layers that are named."""

    def __init__(self, *order: str, reentrant: bool, shared: bool = False) -> None:
        super().__init__()
        self.plain, self.kept = (nn.Linear(20, 20) for _ in range(2))
        if shared:
            self.plain.weight = self.kept.weight
        self.order, self.reentrant = order, reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name in self.order:
            layer = self.plain if name == "plain" else self.kept
            is_kept = name != "plain"
            x = (
                checkpoint(layer, x, use_reentrant=self.reentrant)
                if is_kept
                else layer(x)
            )
        return x


def losses(model, rank) -> Iterator[torch.Tensor]:
    inputs = inputs_of(rank, 16, 20, requires_grad=True)
    yield model(inputs).square().mean()


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("unused", ["error", "keep_none"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_layer_is_checkpointed(play, wrap, reentrant, unused, times) -> None:
    make = of(Checkpointed, "plain", *["kept"] * times, reentrant=reentrant)
    options = {"unused": unused, "static_graph": reentrant}
    assert_averages(play, wrap, make, *[losses] * 3, **options)


@pytest.mark.parametrize("shared", [False, True])
def test_another_layer_is_checkpointed_in_each_step(play, wrap, shared) -> None:
    def of_step(name: str):
        def alone(model, rank) -> Iterator[torch.Tensor]:
            inputs = inputs_of(rank, 16, 20)
            yield model(inputs, name).square().mean()

        return alone

    class Dynamic(Checkpointed):
        def forward(self, x: torch.Tensor, name: str) -> torch.Tensor:
            return checkpoint(getattr(self, name), x, use_reentrant=False)

    make = of(Dynamic, reentrant=False, shared=shared)
    steps = [of_step(name) for name in ("kept", "plain") * 2]
    assert_averages(play, wrap, make, *steps, unused="keep_none")


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_whole_model_with_a_shared_weight_is_checkpointed(
    play, wrap, reentrant
) -> None:
    class Whole(Checkpointed):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            both = nn.Sequential(self.plain, self.kept)
            return checkpoint(both, x, use_reentrant=reentrant)

    make = of(Whole, reentrant=reentrant, shared=True)
    assert_averages(play, wrap, make, *[losses] * 3, static_graph=reentrant)


def test_a_shared_weight_is_checkpointed_twice(play, wrap) -> None:
    make = of(Checkpointed, "plain", "kept", "kept", reentrant=True, shared=True)
    assert_averages(play, wrap, make, *[losses] * 3, static_graph=True)
