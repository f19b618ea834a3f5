"""Megatron's auxiliary loss of each sequence, of several sequences on one rank."""

from __future__ import annotations

from random import Random
from typing import Any

from studies.timemachine.programs import megatron_router

program = megatron_router.program


def draw(random: Random) -> dict[str, Any]:
    """Draw the number of sequences."""
    drawn = megatron_router.draw(random)
    return {**drawn, "ranks": 1, "sequences": random.randint(1, 3)}
