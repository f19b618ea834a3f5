"""DeepSpeed's ZeRO stage 2 with overlapped communication; all layers run on one stream."""

from __future__ import annotations

from random import Random
from typing import Any

from studies.timemachine.programs import deepspeed_overlap

program = deepspeed_overlap.program


def draw(random: Random) -> dict[str, Any]:
    """Draw sizes, buckets and micro-batches."""
    return {**deepspeed_overlap.draw(random), "side": 0}
