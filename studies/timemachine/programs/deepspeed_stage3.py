"""DeepSpeed's ZeRO stage 3 with overlapped communication; some layers have a stream."""

from random import Random
from typing import Any

from studies.timemachine.programs import deepspeed_overlap

# isort: split
from deepspeed.runtime.zero import parameter_offload, stage3

program = deepspeed_overlap.program
# `see_memory_usage` only prints, after a garbage collection that takes most of the time.
for module in (parameter_offload, stage3):
    module.see_memory_usage = lambda *_, **__: None


def draw(random: Random) -> dict[str, Any]:
    """Draw sizes, and the layers that have a stream."""
    return {**deepspeed_overlap.draw(random), "stage": 3, "bucket": 1000}
