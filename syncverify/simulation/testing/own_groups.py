"""Process groups that a test makes by itself, as it would in a process of its own.

A test calls `init_process_group` with a rendezvous of its own: a file, a port, a store. On a
simulated rank the machine is the rendezvous, whichever backend the test names.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch.distributed as dist
from torch.distributed import device_mesh  # imports the function by name

from syncverify.sim.device.streams import own_streams
from syncverify.sim.network.communicator import BACKEND_NAME
from syncverify.sim.network.threaded_world import has_groups

# The store of `FakeProcessGroup`, which moves no data, is the test's own.
_FAKE: Final = "fake"
_INIT: Final = "init_process_group"


@dataclass(slots=True)
class _Rendezvous:
    """Where the processes of a job meet, for one rank.

    Attributes:
        rank: Global rank.
        num_ranks: Number of ranks.
        store: Store of the machine.
        num_made: Number of default groups that the test has made.
    """

    rank: int
    num_ranks: int
    store: dist.Store
    num_made: int = 0

    def init(
        self, original: Callable[..., None], backend: Any, rank: int, size: int
    ) -> None:
        """Make the default group."""
        store = dist.PrefixStore(f"made/{self.num_made}", self.store)
        self.num_made += 1
        own_rank = self.rank if rank < 0 else rank
        own_size = self.num_ranks if size < 0 else size
        original(BACKEND_NAME, rank=own_rank, world_size=own_size, store=store)
        streams = own_streams()
        if streams is not None and backend is not None:
            streams.backends.default = str(backend).lower()


class _OfThread(threading.local):
    rendezvous: _Rendezvous | None = None


_OF_THREAD: Final = _OfThread()


@contextmanager
def without_group(rank: int, num_ranks: int) -> Iterator[None]:
    """Let a rank begin without a default group, and leave it without one."""
    store = dist.distributed_c10d._get_default_store()  # noqa: SLF001
    dist.destroy_process_group()
    _OF_THREAD.rendezvous = _Rendezvous(rank, num_ranks, store)
    try:
        yield
    finally:
        _OF_THREAD.rendezvous = None
        if has_groups():
            dist.destroy_process_group()


@contextmanager
def own_groups() -> Iterator[None]:
    """Let ranks make default groups by themselves within a block."""
    owners = dist, dist.distributed_c10d, device_mesh
    originals = [getattr(owner, _INIT) for owner in owners]
    for owner, original in zip(owners, originals, strict=True):
        setattr(owner, _INIT, _by_rank(original))
    try:
        yield
    finally:
        for owner, original in zip(owners, originals, strict=True):
            setattr(owner, _INIT, original)


def _by_rank(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init_process_group(
        backend: Any = None, init_method: Any = None, timeout: Any = None,
        world_size: int = -1, rank: int = -1, *more: Any, **options: Any,
    ) -> None:  # fmt: skip
        own = _OF_THREAD.rendezvous
        if own is None or backend in {_FAKE, BACKEND_NAME}:
            original(backend, init_method, timeout, world_size, rank, *more, **options)
        else:
            own.init(original, backend, rank, world_size)

    return init_process_group
