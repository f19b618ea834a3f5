"""A small GPT with one weight for its embedding and its output layer."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from typing_extensions import override

from syncverify.playing.program.modules.model import Model

_BATCH, _CONTEXT, _VOCABULARY, _WIDTH = 2, 3, 5, 4


class SmallGpt(nn.Module):
    """One transformer block between tied embeddings, trained on random tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(_VOCABULARY, _WIDTH)
        self.positions = nn.Embedding(_CONTEXT, _WIDTH)
        self.block = nn.TransformerEncoderLayer(
            _WIDTH, 2, 2 * _WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.norm = nn.LayerNorm(_WIDTH)
        self.head = nn.Linear(_WIDTH, _VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    @override
    def forward(self, generator: torch.Generator) -> torch.Tensor:
        text = torch.randint(_VOCABULARY, (_BATCH, _CONTEXT + 1), generator=generator)
        text = text.to(self.tokens.weight.device)
        positions = torch.arange(_CONTEXT, device=text.device)
        hidden = self.tokens(text[:, :-1]) + self.positions(positions)
        mask = hidden.new_full((_CONTEXT, _CONTEXT), -torch.inf).triu(1)
        logits = self.head(self.norm(self.block(hidden, src_mask=mask, is_causal=True)))
        return functional.cross_entropy(
            logits.flatten(0, 1).float(), text[:, 1:].flatten()
        )


GPT = Model(lambda *_: SmallGpt())
