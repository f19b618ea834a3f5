"""Ranks that begin as processes of their own do: without a default process group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

from syncverify.sim.network.threaded_world import has_groups


@contextmanager
def without_group() -> Iterator[None]:
    """Let a rank begin without a default group, and leave it without one."""
    dist.destroy_process_group()
    try:
        yield
    finally:
        if has_groups():
            dist.destroy_process_group()
