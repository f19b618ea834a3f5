"""The environment of ranks that are threads of one process, which has one environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from syncverify.program.rank_environment import RANK_VARIABLES
from syncverify.sim.network.threaded_world import own_world


@contextmanager
def rank_environment() -> Iterator[None]:
    """Let each rank read variables of its own, as a launcher sets them, within a block.

    `os.environ` itself stays, since a subject may have imported it by name.
    """
    kind: Any = type(os.environ)
    read = kind.__getitem__

    def read_for_rank(environ: os._Environ[str], name: str) -> str:
        variable = RANK_VARIABLES.get(name)
        if variable and own_world() is not None and dist.is_initialized():
            return str(variable())
        return str(read(environ, name))

    kind.__getitem__ = read_for_rank
    try:
        yield
    finally:
        kind.__getitem__ = read
