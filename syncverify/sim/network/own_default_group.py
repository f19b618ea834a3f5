"""The default group of a program that makes it itself.

The machine makes a default group before a program starts. The first call of
`init_process_group` on a rank takes that group over; one after `destroy_process_group` makes
another group of all ranks. A call while there is a group of the program raises, as torch does.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch.distributed as dist

from syncverify.sim.device.streams import own_streams
from syncverify.sim.turns.scheduler import own_rank

# Makes the default group of a rank, with a store of that rank.
MakeGroup = Callable[[int, dist.Store], None]


@contextmanager
def own_default_groups(make: MakeGroup, store: dist.Store, size: int) -> Iterator[None]:
    """Let programs make their default groups, for a block.

    Args:
        make: Makes the default group of a rank.
        store: Store of all ranks.
        size: World size.
    """
    num_made = Counter[int]()
    original = dist.init_process_group
    parameters = inspect.signature(original)

    def init_process_group(backend: Any = None, *args: Any, **named: Any) -> None:
        rank = own_rank()
        if rank is None or (num_made[rank] and dist.is_initialized()):
            original(backend, *args, **named)
            return
        _check_place(rank, size, parameters.bind(backend, *args, **named).arguments)
        num_made[rank] += 1
        streams = own_streams()
        if backend is not None and streams is not None:
            streams.backends.default = str(backend).lower()
        if not dist.is_initialized():
            make(rank, dist.PrefixStore(f"group {num_made[rank]}", store))

    with ExitStack() as stack:
        for owner in (dist, dist.distributed_c10d):
            name = "init_process_group"
            stack.enter_context(mock.patch.object(owner, name, init_process_group))
        yield


def _check_place(rank: int, size: int, arguments: Mapping[str, Any]) -> None:
    """Raise a ValueError if a call names another rank, or another number of ranks."""
    asked = arguments.get("rank", -1), arguments.get("world_size", -1)
    if asked[0] not in {-1, rank} or asked[1] not in {-1, size}:
        raise ValueError(
            f"expected rank {rank} of {size}, which this simulated rank is; "
            f"init_process_group was called with rank={asked[0]}, world_size={asked[1]}"
        )
