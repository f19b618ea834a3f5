"""torch.distributed with one world per thread, and the default group of each.

The only module that touches torch's testing machinery for ranks without processes. We
rely on four facts, and a test says so: `_install_threaded_pg` gives each thread its own
table of process groups, `_uninstall_threaded_pg` puts the process-wide table back,
thread isolation keeps functional collectives of one thread from finding another's
groups, and importing `fake_pg` registers a backend that moves no data.

The machine makes a default group before a program starts. The first call of
`init_process_group` on a rank takes that group over; one after `destroy_process_group` makes
another group of all ranks. A call while there is a group of the program raises, as torch does.
"""

import inspect
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.testing._internal.distributed.multi_threaded_pg import (
    ThreadLocalWorld,
    _install_threaded_pg,
    _uninstall_threaded_pg,
)

from syncverify.holding import holding
from syncverify.late_imports import import_dynamo
from syncverify.sim.device.streams import own_streams
from syncverify.sim.device.torch_internals import isolate_threads
from syncverify.sim.network.communicator import BACKEND_NAME
from syncverify.sim.network.rendezvous import SimulatedWorld
from syncverify.sim.turns.scheduler import own_rank

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


@contextmanager
def own_default_groups(store: dist.Store, world: SimulatedWorld) -> Iterator[None]:
    """Let programs make their default groups, for a block."""
    size, num_made = len(world.recorders), world.num_default_groups
    cell = _cell_of_init()
    original = cell.cell_contents
    parameters = inspect.signature(original)

    def init_process_group(backend: Any = None, *args: Any, **named: Any) -> None:
        rank = own_rank()
        has_own = rank is not None and num_made[rank] and dist.is_initialized()
        # `fake` moves no data, and a test gives it a store of its own.
        if rank is None or has_own or backend == "fake":
            original(backend, *args, **named)
            return
        _check_place(rank, size, parameters.bind(backend, *args, **named).arguments)
        num_made[rank] += 1
        streams = own_streams()
        if streams is not None:
            streams.backends.begin_world(backend)
        if not dist.is_initialized():
            own_store = dist.PrefixStore(f"group {num_made[rank]}", store)
            make_default_group(rank, size, own_store)

    with holding(cell, "cell_contents", init_process_group):
        yield


def make_default_group(rank: int, size: int, store: dist.Store) -> None:
    """Make the default group as torch does, whatever `own_default_groups` has exchanged."""
    make = inspect.unwrap(dist.init_process_group)
    make(BACKEND_NAME, rank=rank, world_size=size, store=store)


def _cell_of_init() -> types.CellType:
    """Return the place in which the outermost decorator keeps what it decorates.

    The function under torch's decorators is exchanged and not its name, so that a program may
    have imported the name before.
    """
    init = dist.init_process_group
    cells = zip(init.__code__.co_freevars, init.__closure__ or (), strict=True)
    return dict(cells)["func"]


def _check_place(rank: int, size: int, arguments: Mapping[str, Any]) -> None:
    """Raise a ValueError if a call names another rank, or another number of ranks."""
    asked = arguments.get("rank", -1), arguments.get("world_size", -1)
    if asked[0] not in {-1, rank} or asked[1] not in {-1, size}:
        raise ValueError(
            f"expected rank {rank} of {size}, which this simulated rank is; "
            f"init_process_group was called with rank={asked[0]}, world_size={asked[1]}"
        )
