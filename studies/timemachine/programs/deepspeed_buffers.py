"""DeepSpeed's ZeRO stage 2 with overlapped communication; all layers are on one stream."""

from random import Random
from typing import Any

from studies.timemachine.programs import deepspeed_overlap

program = deepspeed_overlap.program


def draw(random: Random) -> dict[str, Any]:
    """Draw sizes, and buckets that a layer fills."""
    return {
        **deepspeed_overlap.draw(random),
        "bucket": random.choice([4, 8, 16]),
        "side": 0,
    }
