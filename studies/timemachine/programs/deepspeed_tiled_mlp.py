"""DeepSpeed's MLP in tiles of the sequence, with each tile computed again in backward."""

from __future__ import annotations

from random import Random
from typing import Any

import torch

from studies.timemachine.comparing import check_equal
from studies.timemachine.programs.deepspeed_start import start

# isort: split
from deepspeed.runtime.sequence_parallel.ulysses_sp import TiledMLP


def draw(random: Random) -> dict[str, Any]:
    """Draw sizes: each tile has the same length."""
    return {
        "ranks": 1,
        "seed": random.randrange(1000),
        "sequences": random.randint(1, 3),
        "tiles": random.randint(1, 3),
        "tile_length": random.randint(1, 3),
        "width": random.randint(1, 4),
    }


def program(
    rank: int, *, seed: int, sequences: int, tiles: int, tile_length: int, width: int
) -> None:
    """Compare the gradient of the input with that of the whole MLP."""
    start()
    made = torch.Generator().manual_seed(seed)
    weight = torch.randn(width, width, generator=made)
    shape = (sequences, tiles * tile_length, width)
    x = torch.randn(shape, generator=made, requires_grad=True)
    scale = torch.randn(shape, generator=made)

    def layer(_: Any, tile: torch.Tensor) -> torch.Tensor:
        return (tile @ weight).tanh()

    (expected,) = torch.autograd.grad((layer(None, x) * scale).sum(), [x])
    output = TiledMLP.apply(layer, torch.nn.Identity(), x, tiles, [])
    (output * scale).sum().backward()
    assert x.grad is not None
    check_equal(f"gradient of the input on rank {rank}", x.grad, expected)
