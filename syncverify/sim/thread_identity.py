"""Which rank a thread belongs to, handed on to further threads of that rank.

A simulated rank is a thread, and all that makes it one is local to that thread. The
engine changes threads where backwards are nested deeply, and users start some of their
own. One of them at a time may act for a rank: it has the rank's turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from syncverify.sim import scheduler, streams
from syncverify.sim.threaded_world import own_world, use_world


def thread_identity() -> Callable[[], AbstractContextManager[None]]:
    """Take note of the calling thread's rank.

    Returns:
        What makes another thread act for this rank for the length of a block. On a thread
        that does so already it changes nothing.
    """
    rank, own, world = (
        scheduler.own_rank(),
        streams.own_streams(),
        own_world(),
    )

    @contextmanager
    def as_rank() -> Iterator[None]:
        if streams.own_streams() is own:
            yield
            return
        before = scheduler.own_rank(), streams.own_streams(), own_world()
        _become(rank, own, world)
        try:
            yield
        finally:
            _become(*before)

    return as_rank


def _become(
    rank: int | None, own: streams.RankStreams | None, world: object | None
) -> None:
    scheduler.enter_rank(rank)
    streams.enter_rank(own)
    use_world(world)
