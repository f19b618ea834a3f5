"""A small GPT with FSDP2 and tensor parallelism, and one mistake: syncverify parity examples/parity_gpt.py."""

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional

WORDS, LENGTH = 32, 8


class Attention(nn.Module):
    def __init__(self, width: int, head: int) -> None:
        super().__init__()
        self.head = head
        self.q, self.k, self.v, self.out = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.q_norm, self.k_norm = nn.RMSNorm(head), nn.RMSNorm(head)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = (*x.shape[:2], -1, self.head)
        q, k, v = self.q(x).view(heads), self.k(x).view(heads), self.v(x).view(heads)
        q, k, v = (each.transpose(1, 2) for each in (self.q_norm(q), self.k_norm(k), v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, head: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, head)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, width: int, head: int, layers: int) -> None:
        super().__init__()
        self.words, self.places = (
            nn.Embedding(WORDS, width),
            nn.Embedding(LENGTH, width),
        )
        self.blocks = nn.ModuleList(Block(width, head) for _ in range(layers))
        self.norm, self.logits = (
            nn.LayerNorm(width),
            nn.Linear(width, WORDS, bias=False),
        )

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words) + self.places.weight[: words.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.logits(self.norm(x))


def build(layers: int = 2) -> nn.Module:
    return GPT(width=16, head=4, layers=layers)


def parallelize(model, mesh):
    plan = {
        "attention.q": ColwiseParallel(),
        "attention.k": ColwiseParallel(),
        "attention.v": ColwiseParallel(),
        "attention.out": RowwiseParallel(),
        "up": ColwiseParallel(),
        "down": RowwiseParallel(),
    }
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], plan)
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])


def batch():
    return torch.randint(WORDS, (8, LENGTH + 1))


def loss(model, batch):
    logits = model(batch[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


clip = 1.0
layouts = [{"dp": 2, "tp": 2}]
