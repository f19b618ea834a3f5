"""The environment of ranks that are threads of one process, which has one environment."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch.distributed as dist

from syncverify.sim.network.threaded_world import own_world
from syncverify.sim.process_wide.rank_variables import RANK_VARIABLES

_OPEN: Final[list[object]] = []


@contextmanager
def rank_environment() -> Iterator[None]:
    """Let each rank read variables of its own, as a launcher sets them, within a block.

    `os.environ` itself stays, since a subject may have imported it by name. Blocks of several
    threads may end in any order.
    """
    _change_reading()
    block = object()
    _OPEN.append(block)
    try:
        yield
    finally:
        _OPEN.remove(block)


@functools.cache
def _change_reading() -> None:
    """Change how variables are read, once in a process.

    Python 3.13 goes on to call the method that it has cached, once a class has been changed
    1,000 times.
    """
    kind: Any = type(os.environ)
    read = kind.__getitem__

    def read_for_rank(environ: os._Environ[str], name: str) -> str:
        variable = RANK_VARIABLES.get(name) if _OPEN else None
        if variable and own_world() is not None and dist.is_initialized():
            return str(variable())
        return str(read(environ, name))

    kind.__getitem__ = read_for_rank
