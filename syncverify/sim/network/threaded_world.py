"""torch.distributed with one world per thread.

The only module that touches torch's testing machinery for ranks without processes. We
rely on four facts, and a test says so: `_install_threaded_pg` gives each thread its own
table of process groups, `_uninstall_threaded_pg` puts the process-wide table back,
thread isolation keeps functional collectives of one thread from finding another's
groups, and importing `fake_pg` registers a backend that moves no data.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.testing._internal.distributed.multi_threaded_pg import (
    ThreadLocalWorld,
    _install_threaded_pg,
    _uninstall_threaded_pg,
)

from syncverify.late_imports import import_dynamo
from syncverify.sim.device.torch_internals import isolate_threads

# Owner and name of the function by which torch finds the world of the calling thread.
GET_WORLD = ThreadLocalWorld, "_get_world"


@contextmanager
def thread_local_world() -> Iterator[None]:
    """Give every thread its own `torch.distributed` world for the length of a block.

    Raises:
        RuntimeError: The process already has a default process group, which the
            simulation would hide.
    """
    if dist.is_initialized():
        raise RuntimeError(
            "expected no default process group in a process that simulates ranks; "
            "call torch.distributed.destroy_process_group() first"
        )
    import_dynamo()
    # torch adds a hook with every process group, each calling the one before.
    hook = sys.excepthook
    _install_threaded_pg()
    isolate_threads(True)
    try:
        yield
    finally:
        isolate_threads(False)
        _uninstall_threaded_pg()
        sys.excepthook = hook


def own_world() -> object | None:
    """Return the world of the calling thread, if it has one."""
    return getattr(ThreadLocalWorld._world, "world", None)  # noqa: SLF001


def has_groups() -> bool:
    """Tell whether the calling thread has a world, and its groups were not destroyed."""
    world: Any = own_world()
    return world is not None and world.default_pg is not None


def use_world(world: object | None) -> None:
    """Give the calling thread the world of another one, or none."""
    if world is not None:
        ThreadLocalWorld._world.world = world  # noqa: SLF001
    elif own_world() is not None:
        del ThreadLocalWorld._world.world  # noqa: SLF001


def init_fake_process_group(*, rank: int, world_size: int) -> None:
    """Make torch's FakeProcessGroup, which moves no data, the default one."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)
