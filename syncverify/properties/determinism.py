"""Properties of doing the same thing twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

import torch

from syncverify.properties.judgement import Finding, Judgement
from syncverify.run import Observation, RankRun, Run
from syncverify.trace import Event, StorageFreed


def subject_is_deterministic(judgement: Judgement) -> Iterator[Finding]:
    """Played again with the same schedule, every rank does and sees the same.

    Applies where a scenario was played twice. The simulated machine leaves nothing to
    chance, so whatever differs comes from the subject: the first event of a rank that
    differs, or else the first gradient, or else how the run ended.

    Catches: orders that come from a set, from `id()`, from the clock or from unseeded
    random numbers; state that outlives a synchronizer.

    Does not promise: that two processes agree, where hashes of strings differ; the gloo
    backend plays that. When memory is freed is Python's business, and is not compared.
    """
    again = judgement.again
    if again is None:
        return
    for rank, (one, other) in enumerate(
        zip(judgement.run.ranks, again.ranks, strict=True)
    ):
        finding = _events(rank, one, other) or _gradients(rank, one, other)
        if finding is not None:
            yield finding
            return
    if _end(judgement.run) != _end(again):
        yield _finding(
            "ends_otherwise", "the run ended", _end(judgement.run), _end(again), None
        )


def _events(rank: int, one: RankRun, other: RankRun) -> Finding | None:
    pairs = zip_longest(_compared(one), _compared(other))
    for index, (event, instead) in enumerate(pairs):
        if event != instead:
            what = f"rank {rank}, event {index}"
            found = _told(event), _told(instead)
            return _finding("acts_otherwise", what, *found, rank)
    return None


def _compared(run: RankRun) -> list[Event]:
    return [event for event in run.events if not isinstance(event, StorageFreed)]


def _gradients(rank: int, one: RankRun, other: RankRun) -> Finding | None:
    for seen, instead in zip(one.observations, other.observations, strict=False):
        for name in seen.gradients:
            found = _values(seen, name), _values(instead, name)
            if found[0] != found[1]:
                what = f"rank {rank}, gradient of {name!r}, step {seen.step}"
                return _finding("sums_otherwise", what, *found, rank, name)
    return None


def _values(observation: Observation, name: str) -> str:
    gradient = observation.gradients[name]
    if gradient is None:
        return "no gradient"
    shown: Sequence[object] = gradient.to(torch.float64).flatten().tolist()
    return f"{str(gradient.dtype).removeprefix('torch.')} {shown}"


def _end(run: Run) -> str:
    if run.fault is None:
        return "all ranks reached their end"
    where = ", ".join(map(str, run.fault.ranks))
    return f"{run.fault.kind} {run.fault.identity}".strip() + f" on rank(s) {where}"


def _told(event: Event | None) -> str:
    return "nothing more" if event is None else str(event)


def _finding(
    cause: str,
    what: str,
    first: str,
    second: str,
    rank: int | None,
    parameter: str | None = None,
) -> Finding:
    return Finding(
        cause,
        f"the same scenario with the same schedule went another way when played again: {what}",
        rank,
        parameter,
        {"details": [f"first: {first}", f"again: {second}"]},
    )
