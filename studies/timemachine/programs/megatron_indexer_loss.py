"""Megatron's scale of the loss that trains the indexer of sparse attention."""

from __future__ import annotations

from random import Random
from typing import Any

from megatron.core.transformer.experimental_attention_variant.dsa import (
    DSAIndexerLossAutoScaler,
)

from studies.timemachine.comparing import check_equal
from studies.timemachine.programs.megatron_auxiliary_loss import gradients


def draw(random: Random) -> dict[str, Any]:
    """Draw the number of micro-batches."""
    return {"ranks": 1, "micro_batches": random.randint(1, 4)}


def program(rank: int, *, micro_batches: int) -> None:
    """Compare the gradient of the indexer's loss with that of an equal main loss."""
    of_main, of_indexer = gradients(
        DSAIndexerLossAutoScaler, 1, micro_batches, experimental_attention_variant="dsa"
    )
    check_equal(f"gradient of the indexer's loss on rank {rank}", of_indexer, of_main)
