"""DeepSpeed's attention with split sequences (Ulysses), of several sequences."""

from __future__ import annotations

from random import Random
from typing import Any

from studies.timemachine.programs import deepspeed_ulysses

program = deepspeed_ulysses.program


def draw(random: Random) -> dict[str, Any]:
    """Draw sizes, and the number of sequences."""
    return {**deepspeed_ulysses.draw(random), "sequences": random.randint(1, 3)}
