"""DeepSpeed's ZeRO stage 2 with overlapped communication; no parameter is larger than a bucket."""

from random import Random
from typing import Any

from studies.timemachine.programs import deepspeed_overlap

program = deepspeed_overlap.program


def draw(random: Random) -> dict[str, Any]:
    """Draw sizes, all on one stream."""
    return {**deepspeed_overlap.draw(random), "bucket": 16, "side": 0}
