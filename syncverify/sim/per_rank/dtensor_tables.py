"""State of DTensor that a program changes for the length of a block.

| part | who changes it |
|---|---|
| handlers of operators | `loss_parallel`, `context_parallel` |
| implicit replication | `implicit_replication` |
| tracker of random numbers | the first random operator on a mesh |
| ways to redistribute | two context managers of `_redistribute` |

The only module that touches these private names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from torch.distributed.tensor import (
    DTensor,
    _random,  # see above
    _redistribute,
)

from syncverify.sim.per_rank.change import ProcessPart, Table, attribute

HANDLERS: Final = "_custom_op_handlers"
_ATTRIBUTES: Final[tuple[tuple[Any, str], ...]] = (
    (DTensor._op_dispatcher, HANDLERS),  # noqa: SLF001
    (DTensor._op_dispatcher, "_allow_implicit_replication"),  # noqa: SLF001
    (_random, "_rng_tracker"),
    (_redistribute, "_FORCE_MIN_COST_REDISTRIBUTION_PLAN"),
    (_redistribute, "_DISABLE_REDISTRIBUTE_TRANSFORM_OPTIMIZATION"),
)


def dtensor_tables() -> Iterator[ProcessPart]:
    """Yield the parts; one that this torch lacks is left out."""
    for owner, name in _ATTRIBUTES:
        if hasattr(owner, name):
            yield attribute(owner, name)
    # The table itself is changed as well as replaced.
    yield Table(getattr(DTensor._op_dispatcher, HANDLERS))  # noqa: SLF001
