"""Properties of ranks that never met: their logs are compared instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise, zip_longest

from syncverify.coordinate_classes import box
from syncverify.properties.judgement import Finding, Judgement
from syncverify.run import Run
from syncverify.scenario import Scenario
from syncverify.trace import CollectiveLaunch


def classes_agree(judgement: Judgement) -> Iterator[Finding]:
    """Where collectives move no data, ranks that would meet issue the same ones.

    For all communicators and ranks that played: what its members issue on it has the same
    operation, reduction, dtype and number of elements one by one, and reductions the same
    parameters; and all these meetings can be put in one order that no rank departs from.

    Catches: ranks of a large world that cut buckets by local bytes, skip a collective, or
    take communicators in different orders. Where ranks really meet it does not apply:
    `every_rank_finishes` says so. Does not compare ranks that share no communicator: what
    one does is no business of the other.
    """
    if judgement.run.carries_data or judgement.run.fault is not None:
        return
    logs = _Logs.of(judgement.run)
    different = list(_different(judgement.scenario, logs))
    yield from different or _cycles(judgement.scenario, logs)


@dataclass(frozen=True, slots=True)
class _Logs:
    """What the ranks that played issued, on numbered communicators of several ranks.

    Attributes:
        launches: By rank, in order, each with its communicator's number.
        members: By number, the ranks that played and are in the communicator.
    """

    launches: dict[int, list[tuple[int, CollectiveLaunch]]]
    members: list[list[int]]

    @classmethod
    def of(cls, run: Run) -> _Logs:
        played = run.representatives or range(len(run.ranks))
        # Numbers, because a communicator may be a tuple of thousands.
        numbers: dict[tuple[int, ...], int] = {}
        launches = {
            rank: [
                (numbers.setdefault(event.ranks, len(numbers)), event)
                for event in run.ranks[rank].events
                if isinstance(event, CollectiveLaunch) and len(event.ranks) > 1
            ]
            for rank in played
        }
        sets = [frozenset(ranks) for ranks in numbers]
        return cls(launches, [[r for r in played if r in ranks] for ranks in sets])

    def on(self, communicator: int, rank: int) -> list[CollectiveLaunch]:
        """List what a rank issued on a communicator."""
        return [
            launch for number, launch in self.launches[rank] if number == communicator
        ]


def _different(scenario: Scenario, logs: _Logs) -> Iterator[Finding]:
    for communicator, (first, *others) in enumerate(logs.members):
        expected = logs.on(communicator, first)
        for rank in others:
            for here, there in zip_longest(expected, logs.on(communicator, rank)):
                if _compared(here) != _compared(there):
                    lines = [_said(scenario, first, here), _said(scenario, rank, there)]
                    summary = f"ranks {first} and {rank} would meet and disagree"
                    yield _finding("logs_differ", summary, rank, here or there, lines)
                    break


def _compared(launch: CollectiveLaunch | None) -> object:
    if launch is None:
        return None
    bucket = launch.parameters if launch.reduces else ()
    return (launch.moment, launch.signature, bucket)


def _cycles(scenario: Scenario, logs: _Logs) -> Iterator[Finding]:
    """Find meetings each of which some rank issues only after the one before it."""
    order: TopologicalSorter[tuple[int, int]] = TopologicalSorter()
    issued: dict[tuple[tuple[int, int], tuple[int, int]], str] = {}
    for rank, launches in logs.launches.items():
        meetings = [(number, launch.sequence) for number, launch in launches]
        for place, (before, after) in enumerate(pairwise(meetings)):
            order.add(after, before)
            line = _said(scenario, rank, launches[place + 1][1])
            issued.setdefault((before, after), line)
    try:
        order.prepare()
    except CycleError as error:
        lines = [issued[pair] for pair in pairwise(error.args[1])]
        summary = "no order of all collectives suits all ranks"
        yield _finding("orders_differ", summary, None, None, lines)


def _said(scenario: Scenario, rank: int, launch: CollectiveLaunch | None) -> str:
    words = "nothing more" if launch is None else f"{launch} ({launch.moment})"
    return f"rank {rank} ({box(scenario, rank)}): {words}"


def _finding(
    cause: str,
    summary: str,
    rank: int | None,
    launch: CollectiveLaunch | None,
    lines: list[str],
) -> Finding:
    return Finding(
        cause,
        f"{summary}: " + "; ".join(lines),
        rank,
        ", ".join(launch.parameters) or None if launch else None,
        {"details": lines},
    )
