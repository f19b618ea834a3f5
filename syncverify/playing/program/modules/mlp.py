"""A multilayer perceptron."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from typing_extensions import override

from syncverify.playing.program.modules.model import Model

_WIDTH, _HIDDEN, _BATCH = 3, 4, 2


class Perceptron(nn.Module):
    """Two linear layers, trained on random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(_WIDTH, _HIDDEN)
        self.down = nn.Linear(_HIDDEN, 1)

    @override
    def forward(self, generator: torch.Generator) -> torch.Tensor:
        batch = torch.randn(
            _BATCH, _WIDTH + 1, generator=generator, dtype=torch.float32
        )
        inputs, targets = batch.to(self.up.weight.device).split([_WIDTH, 1], dim=1)
        hidden = functional.gelu(self.up(inputs.to(self.up.weight.dtype)))
        return functional.mse_loss(self.down(hidden).float(), targets)


MLP = Model(lambda *_: Perceptron())
