"""The options of FSDP2's subjects: the setters of `FSDPModule`, and arguments of `fully_shard`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from torch.distributed.fsdp import FSDPModule

from syncverify.subjects.subject_options import SubjectOption, one_of


def _power_of_two(text: str) -> float:
    value = float(text)
    # Exact in every dtype, even for the smallest and for the largest gradient in float16.
    if not 1 / 16 <= value <= 16 or math.frexp(value)[0] != 0.5:
        raise ValueError(text)
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


_SWITCH: Final = one_of({"true": True, "false": False})
_COUNT: Final = SubjectOption("a positive integer", _positive)
# The adapter calls the method `set_` of a name; releases of torch add some.
_SETTERS: Final[Mapping[str, SubjectOption]] = {
    "gradient_divide_factor": SubjectOption(
        "a power of two from 0.0625 to 16, such as 2", _power_of_two
    ),
    "force_sum_reduction_for_comms": _SWITCH,
    "reshard_after_forward": _SWITCH,
    "reduce_scatter_max_input_buffers": _COUNT,
    "separate_reduce_scatter_group": _SWITCH,
}
OPTIONS: Final = {
    **{n: each for n, each in _SETTERS.items() if hasattr(FSDPModule, f"set_{n}")},
    # With bfloat16, scenarios have gradients whose sums over ranks it holds.
    "reduce_dtype": one_of({n: n for n in ("float32", "float64", "bfloat16")}),
    # Each micro-batch reduces; or each reduce-scatters, and the last one all-reduces.
    "gradient_sync": one_of({"each": "each"}),
    "all_reduce": one_of({"last": "last"}),
    # The last backward alone frees the gathered parameters; the optimizer needs shards.
    "reshard": one_of({"last": "last"}),
    "shard_size": _COUNT,
}
_OF_SHARDS: Final = {"reshard_after_forward", "shard_size"}
OPTIONS_WITHOUT_SHARDS: Final = {
    name: each for name, each in OPTIONS.items() if name not in _OF_SHARDS
}
