"""Variables of the environment that a launcher such as torchrun sets for each rank.

A subject may read its rank there, or `LOCAL_RANK` for its device.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import torch.distributed as dist

# All ranks are on one machine, unless a launcher says something else.
RANK_VARIABLES: Final[Mapping[str, Callable[[], int]]] = {
    "RANK": dist.get_rank,
    "LOCAL_RANK": dist.get_rank,
    "GROUP_RANK": lambda: 0,
    "WORLD_SIZE": dist.get_world_size,
    "LOCAL_WORLD_SIZE": dist.get_world_size,
}


@contextmanager
def missing_rank_variables() -> Iterator[None]:
    """Set the variables of this process that no launcher has set, for the length of a block.

    The default process group is there.
    """
    missing = [name for name in RANK_VARIABLES if name not in os.environ]
    os.environ.update({name: str(RANK_VARIABLES[name]()) for name in missing})
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)
