"""Plays of other legal orders: the first use of a pair without an order runs late."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from syncverify.explain.witness.adversary import AdversarialRecorder, Lateness
from syncverify.judge.ordering.happens_before import Semantics
from syncverify.judge.ordering.inversions import inversions
from syncverify.judge.ordering.races import Unordered
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.trace.run import Traces

Played = TypeVar("Played")


@dataclass(frozen=True, slots=True)
class OtherOrder(Generic[Played]):
    """A play in which a pair runs the other way round, and the recorder that saw to it."""

    pair: Unordered
    rank: int
    adversary: AdversarialRecorder
    played: Played


def other_orders(
    pairs: Iterable[Unordered],
    traces: Traces,
    play: Callable[[list[RankRecorder]], Played],
    recorders: Callable[[], list[RankRecorder]],
    semantics: Semantics = "stream",
) -> Iterator[OtherOrder[Played]]:
    """Play each order in which a pair runs the other way round, one after the other.

    Args:
        pairs: Pairs without an order.
        traces: Traces of the order in which the host queues, with all accesses.
        play: Plays the program with recorders, as it was played for the traces.
        recorders: Makes the recorders of a play.
        semantics: Rules under which the pairs have no order.
    """
    for pair in pairs:
        for inversion in inversions(pair, traces, semantics):
            rank = inversion.rank
            adversary = AdversarialRecorder(Lateness.of(inversion, traces[rank]))
            given = recorders()
            given[rank] = adversary
            yield OtherOrder(pair, rank, adversary, play(given))
