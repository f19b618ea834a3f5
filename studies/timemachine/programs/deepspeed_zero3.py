"""DeepSpeed's ZeRO stage 3 with overlapped communication; some layers have a stream."""

from __future__ import annotations

from random import Random
from typing import Any

from studies.timemachine.programs import deepspeed_overlap

program = deepspeed_overlap.program


def draw(random: Random) -> dict[str, Any]:
    """Draw sizes, buckets, micro-batches, and the layers that have a stream."""
    return {**deepspeed_overlap.draw(random), "stage": 3}
