"""The environment of ranks that are threads of one process, which has one environment."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch.distributed as dist

from syncverify.program.rank_environment import RANK_VARIABLES
from syncverify.sim.network.threaded_world import own_world

_ENVIRON: Final[Any] = type(os.environ)
_READ: Final = _ENVIRON.__getitem__
_LOCK: Final = threading.Lock()
_OPEN: Final[list[object]] = []


def _read_for_rank(environ: os._Environ[str], name: str) -> str:
    variable = RANK_VARIABLES.get(name)
    if variable and own_world() is not None and dist.is_initialized():
        return str(variable())
    return str(_READ(environ, name))


@contextmanager
def rank_environment() -> Iterator[None]:
    """Let each rank read variables of its own, as a launcher sets them, within a block.

    `os.environ` itself stays, since a subject may have imported it by name. Blocks of several
    threads may end in any order.
    """
    block = object()
    with _LOCK:
        _OPEN.append(block)
        _ENVIRON.__getitem__ = _read_for_rank
    try:
        yield
    finally:
        with _LOCK:
            _OPEN.remove(block)
            if not _OPEN:
                _ENVIRON.__getitem__ = _READ
