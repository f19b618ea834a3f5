"""The property of two runs of one scenario and schedule."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, zip_longest
from typing import NamedTuple

import torch

from syncverify.judge.evidence import PlayedAgain
from syncverify.judge.properties.judgement import Judgement, Property
from syncverify.judge.traced import launches_of
from syncverify.judge.violation import Circumstance, Violation, finding
from syncverify.plain_text import named
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.run import Observation, RankRun, Run


class _Difference(NamedTuple):
    cause: str
    place: str
    pair: tuple[str, str]  # what both runs did there
    rank: int | None = None
    parameter: str | None = None


@Property(
    order=230,
    condition="The scenario was played twice (on `sim`: some of each search).",
    applies=lambda seen: seen.again is not None,
    example="an order that comes from a set, from `id()` or from the clock",
    needs_data=False,
)
def subject_is_deterministic(judgement: Judgement) -> Iterator[Violation]:
    """Played again with the same schedule, every rank sends and sees the same.

    Applies where a scenario was played twice. The simulated machine leaves nothing to
    chance, so each difference comes from the subject. A finding tells of the first collective
    of a rank that differs, or else of the first gradient, or else of the end of the run.

    Catches: collectives in an order that comes from a set, from `id()`, from the clock or from
    unseeded random numbers; state that outlives a synchronizer.

    Does not promise: that two processes agree, where hashes of strings differ; the gloo
    backend plays that. Local work is not compared: buckets may be cleared in any order.
    """
    again = judgement.again
    found = _differences(judgement.run, again) if again else iter(())
    for cause, place, (first, second), rank, name in islice(found, 1):
        acted = "a second run of the same scenario and schedule acted differently"
        summary, signs = f"{acted}: {place}", frozenset({Circumstance.OTHER_CONTENTS})
        evidence = PlayedAgain(first=first, again=second)
        yield finding(cause, summary, rank, name, evidence, explained_by=signs)


def _differences(run: Run, again: Run) -> Iterator[_Difference]:
    for rank, (one, other) in enumerate(zip(run.ranks, again.ranks, strict=True)):
        launches = zip_longest(_compared(one), _compared(other))
        for index, (launch, another) in enumerate(launches):
            if launch != another:
                place = f"rank {rank}, collective {index}"
                pair = str(launch or "nothing more"), str(another or "nothing more")
                yield _Difference("acts_otherwise", place, pair, rank)
        for seen, instead in zip(one.observations, other.observations, strict=False):
            for name in seen.gradients:
                pair = _values(seen, name), _values(instead, name)
                if pair[0] != pair[1]:
                    place = f"rank {rank}, gradient of {name!r}, step {seen.step}"
                    yield _Difference("sums_otherwise", place, pair, rank, name)
    ends = _end(run), _end(again)
    if ends[0] != ends[1]:
        yield _Difference("ends_otherwise", "the run ended", ends)


def _compared(run: RankRun) -> list[CollectiveLaunch]:
    """List the collectives without the numbers of storages, which local work shifts."""
    return [replace(each, regions=(), written=()) for each in launches_of(run.trace)]


def _values(observation: Observation, name: str) -> str:
    gradient = observation.gradients[name]
    if gradient is None:
        return "no gradient"
    shown: Sequence[object] = gradient.to(torch.float64).flatten().tolist()
    return f"{str(gradient.dtype).removeprefix('torch.')} {shown}"


def _end(run: Run) -> str:
    if run.fault is None:
        return "all ranks reached their end"
    fault = f"{run.fault.kind} {run.fault.identity}".strip()
    return f"{fault} on {named('rank', run.fault.ranks)}"
