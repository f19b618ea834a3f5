"""The harm of a race: a legal order of the streams in which the program returns another value.

A race says that a value may be wrong. To show one, the program is played again with the first
use of the pair running late, as the streams allow, and what it returns is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import torch

from syncverify.explain.witness.other_orders import OtherOrder, other_orders
from syncverify.faces.simulation.program import SimulatedProgram
from syncverify.faces.simulation.simulation import Harm
from syncverify.judge.ordering.races import Unordered, is_same_work, judge_orderings
from syncverify.playing.play import Played, play
from syncverify.scenario.schedule import Schedule
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.sim.turns.decisions import Decisions, SchedulePolicy

# Each order costs a play. If this many orders are harmless, one of the rest rarely does harm.
_MAX_ORDERS: Final = 8
_NUM_SHOWN: Final = 8
# Tensors that each rank returned.
Values = Sequence[Sequence[torch.Tensor]]


def harm_of(
    pair: Unordered, setup: SimulatedProgram, schedule: Schedule
) -> Harm | None:
    """Return the first harm of the orders in which a pair runs the other way round.

    Returns:
        The harm; None where none of the orders that were played changes a returned value.
    """
    return next(_harms(pair, setup, SchedulePolicy(schedule)), None)


def _harms(
    pair: Unordered, setup: SimulatedProgram, policy: SchedulePolicy
) -> Iterator[Harm]:
    def play_again(recorders: list[RankRecorder]) -> Played:
        return play(setup, Decisions(policy), recorders)

    ranks = range(setup.num_ranks)
    queued = play_again([RankRecorder(keeps_everything=True) for _ in ranks])
    # The machine is late: a collective without a wait has not run at all.
    prompt = play(setup, Decisions(policy), is_prompt=True)
    if prompt.run.fault is None:
        yield from _changes(_values(queued), _values(prompt))
    traces = [each.trace for each in queued.run.ranks]
    found = judge_orderings(traces)
    unordered: list[Unordered] = [*found.races, *found.early_frees]
    alike = (each for each in unordered if is_same_work(each, pair))
    orders = other_orders(alike, traces, play_again, setup.recorders)
    for order in islice(orders, _MAX_ORDERS):
        yield from _changes(_values(queued), _seen(order))


def _values(played: Played) -> list[Sequence[torch.Tensor]]:
    return [each.tensors for each in played.returned]


def _seen(order: OtherOrder[Played]) -> Values:
    """Return the values of another order; none where it cannot be played to the end."""
    if order.adversary.gave_up or order.played.run.fault is not None:
        return ()
    values = _values(order.played)
    values[order.rank] = order.adversary.late_read(0) or values[order.rank]
    return values


def _changes(queued: Values, other: Values) -> Iterator[Harm]:
    """Yield the tensors that differ; NaN equals NaN."""
    for rank, (ours, theirs) in enumerate(zip(queued, other, strict=False)):
        for one, two in zip(ours, theirs, strict=False):
            is_other = (one != two) & ~(one.isnan() & two.isnan())
            if is_other.any():
                first = int(is_other.flatten().nonzero()[0])
                start = first if first >= _NUM_SHOWN else 0
                yield Harm(rank, _elements(one, start), _elements(two, start), start)


def _elements(value: torch.Tensor, start: int) -> list[float]:
    shown = value.flatten()[start : start + _NUM_SHOWN]
    parts = torch.view_as_real(shown) if shown.is_complex() else shown
    return [float(element) for element in parts.flatten()[:_NUM_SHOWN]]
