"""The fault of ranks that are processes and take turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from syncverify.playing.faults import mismatch_fault, stall_fault
from syncverify.sim.apart.hub import HeardRank, Hub
from syncverify.sim.turns.stalls import deadlock
from syncverify.trace.run import Fault


def hub_fault(hub: Hub, raised: Iterable[Fault | None]) -> Fault | None:
    """Return the reason for which ranks did not all reach their end."""
    return next(filter(None, _faults(hub, raised)), None)


def _faults(hub: Hub, raised: Iterable[Fault | None]) -> Iterator[Fault | None]:
    yield from (_mismatch(own) for own in hub.ranks)
    yield from raised
    stall = hub.stall
    if stall is not None:
        yield stall_fault(stall.kind, stall.ranks, stall.details, stall.named)
    if any(own.lost for own in hub.ranks):
        yield _death(hub.ranks)


def _mismatch(own: HeardRank) -> Fault | None:
    mismatch = own.ended and own.ended.mismatch
    if not mismatch:
        return None
    return mismatch_fault(mismatch.ranks, mismatch.lines, mismatch.sources)


def _death(ranks: Sequence[HeardRank]) -> Fault:
    """Return the fault of lost processes, with the position of each rank."""
    lost = tuple(own.rank for own in ranks if own.lost)
    details = [*deadlock([own.position() for own in ranks]).details[: len(ranks)]]
    for rank in lost:
        details[rank] = f"rank {rank}: ended by {ranks[rank].lost}{_after(ranks[rank])}"
    words = f"the process of rank {lost[0]} died"
    return Fault("process_died", lost, words, tuple(details))


def _after(own: HeardRank) -> str:
    return f", after {own.last_launch}" if own.last_launch else ""
