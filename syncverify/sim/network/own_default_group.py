"""The default group of a program that makes it itself.

The machine makes a default group before a program starts. The first call of
`init_process_group` on a rank takes that group over; one after `destroy_process_group` makes
another group of all ranks. A call while there is a group of the program raises, as torch does.

torch decorates the function. The function under the decorators is exchanged and not its name, so
that a program may have imported the name before.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch.distributed as dist

from syncverify.sim.device.streams import own_streams
from syncverify.sim.network.rendezvous import SimulatedWorld
from syncverify.sim.turns.scheduler import own_rank

# Moves no data; a test gives it a store of its own.
_FAKE: Final = "fake"
# Makes the default group of a rank, with a store of that rank.
MakeGroup = Callable[[int, dist.Store], None]


@contextmanager
def own_default_groups(
    make: MakeGroup, store: dist.Store, world: SimulatedWorld
) -> Iterator[None]:
    """Let programs make their default groups, for a block.

    Args:
        make: Makes the default group of a rank.
        store: Store of all ranks.
        world: World of the ranks.
    """
    size, num_made = len(world.recorders), world.num_default_groups
    cell = _cell_of_init()
    original = cell.cell_contents
    parameters = inspect.signature(original)

    def init_process_group(backend: Any = None, *args: Any, **named: Any) -> None:
        rank = own_rank()
        has_own = rank is not None and num_made[rank] and dist.is_initialized()
        if rank is None or has_own or backend == _FAKE:
            original(backend, *args, **named)
            return
        _check_place(rank, size, parameters.bind(backend, *args, **named).arguments)
        num_made[rank] += 1
        streams = own_streams()
        if streams is not None:
            streams.backends.begin_world(backend)
        if not dist.is_initialized():
            make(rank, dist.PrefixStore(f"group {num_made[rank]}", store))

    cell.cell_contents = init_process_group
    try:
        yield
    finally:
        cell.cell_contents = original


def make_default_group(backend: str, rank: int, size: int, store: dist.Store) -> None:
    """Make the default group as torch does, whatever `own_default_groups` has exchanged."""
    make = inspect.unwrap(dist.init_process_group)
    make(backend, rank=rank, world_size=size, store=store)


def _cell_of_init() -> types.CellType:
    """Return the place in which the outermost decorator keeps what it decorates."""
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
