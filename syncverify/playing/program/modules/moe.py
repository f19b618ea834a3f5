"""A mixture of experts: the last mesh axis shards the experts, and replicates the router."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional
from typing_extensions import override

from syncverify.playing.program.modules.model import Model
from syncverify.scenario.layout import coordinates
from syncverify.scenario.specs import MeshSpec

_TOKENS, _WIDTH, _HIDDEN, _EXPERTS = 2, 3, 2, 4


class ExpertLayer(nn.Module):
    """The experts of one rank, applied to the rank's own tokens.

    The router may choose an expert of another rank. Its output is left out here, and tokens
    are not exchanged. Each rank's loss is then one term of a sum, which is enough for exact
    sums of gradients.
    """

    def __init__(self, first_expert: int) -> None:
        super().__init__()
        self._first_expert = first_expert
        self.router = nn.Linear(_WIDTH, _EXPERTS, bias=False)
        self.up = nn.Parameter(torch.empty(_EXPERTS, _WIDTH, _HIDDEN))
        self.down = nn.Parameter(torch.empty(_EXPERTS, _HIDDEN, _WIDTH))

    @override
    def forward(self, generator: torch.Generator) -> torch.Tensor:
        batch = torch.randn(
            2, _TOKENS, _WIDTH, generator=generator, dtype=torch.float32
        )
        inputs, targets = batch.to(self.up.device)
        tokens = inputs.to(self.up.dtype)
        weights = self.router(tokens).softmax(dim=-1)
        chosen = weights * functional.one_hot(weights.argmax(dim=-1), _EXPERTS)
        held = chosen.narrow(1, min(self._first_expert, _EXPERTS), len(self.up))
        hidden = functional.gelu(torch.einsum("tw,ewh->teh", tokens, self.up))
        output = torch.einsum("te,teh,ehw->tw", held, hidden, self.down)
        return functional.mse_loss((tokens + output).float(), targets)


def _build(mesh: MeshSpec, rank: int) -> nn.Module:
    num_ranks = mesh.shape[-1]
    return ExpertLayer(coordinates(mesh, rank)[-1] * math.ceil(_EXPERTS / num_ranks))


MOE = Model(_build, sharded={"up": 0, "down": 0})
