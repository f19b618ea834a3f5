"""The rank of a thread, handed on to further threads of that rank.

A simulated rank is a thread, and its rank, streams and world are local to the thread. The
engine changes threads where backwards are nested deeply, and users start threads too. One
thread at a time may act for a rank: the thread that has the rank's turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from syncverify.sim.device import streams
from syncverify.sim.network.threaded_world import own_world, use_world
from syncverify.sim.turns import scheduler
from syncverify.trace.dispatch_modes import carry_dispatch_modes


def thread_identity() -> Callable[[], AbstractContextManager[None]]:
    """Return a function that makes a context, in which a thread acts for the caller's rank.

    The thread gets the dispatch modes that record, too. On a thread of this rank the context
    changes nothing else.
    """
    own, with_modes = _identity(), carry_dispatch_modes()

    @contextmanager
    def as_rank() -> Iterator[None]:
        before = _identity()
        _become(*own)
        try:
            with with_modes():
                yield
        finally:
            _become(*before)

    return as_rank


class _Identity(NamedTuple):
    """The rank for which a thread acts; None for each part that the thread lacks."""

    rank: int | None
    streams: streams.RankStreams | None
    world: object | None


def _identity() -> _Identity:
    return _Identity(scheduler.own_rank(), streams.own_streams(), own_world())


def _become(
    rank: int | None, own: streams.RankStreams | None, world: object | None
) -> None:
    scheduler.enter_rank(rank)
    streams.use_streams(own)
    use_world(world)
