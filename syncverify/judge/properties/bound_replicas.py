"""Replicas that are unequal at `bind()`: soon all are equal, or all stay as they were.

DDP makes them equal in `bind()`, and torch's `replicate` in the first forward.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch

from syncverify.judge.evidence import Left
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.violation import Violation, finding
from syncverify.plain_text import named
from syncverify.playing.program.model import start_value
from syncverify.scenario.layout import contributing_ranks, is_managed
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import ParameterSpec
from syncverify.scenario.step_plan import is_born, is_frozen

_Bound = list[Mapping[str, torch.Tensor]]


class _Replicas(NamedTuple):
    """The replicas of one part of a parameter, as gradients are read for the first time.

    Attributes:
        ranks: Ranks with a replica.
        are_equal: Whether their values are equal.
        are_unchanged: Whether their values are those before `bind()`.
    """

    spec: ParameterSpec
    ranks: tuple[int, ...]
    are_equal: bool
    are_unchanged: bool


def left_unequal(judgement: Judgement) -> Iterator[Violation]:
    """Find replicas that a subject left unequal, though it made others equal."""
    played = [rank_run.bound for rank_run in judgement.run.ranks]
    bound = [values for values in played if values is not None]
    if len(bound) < len(played) or not judgement.run.carries_data:
        return
    found = [*_all_replicas(judgement.scenario, bound)]
    are_made_equal = any(not each.are_unchanged for each in found)
    for each in found:
        if are_made_equal and not each.are_equal:
            yield _finding(each)


def _finding(left: _Replicas) -> Violation:
    name, rank = left.spec.name, left.ranks[-1]
    summary = (
        f"replicas were made equal, and those of {name!r} are unequal on "
        f"{named('rank', left.ranks)}"
    )
    return finding("replicas_left_unequal", summary, rank, name, Left(rank=rank))


def _all_replicas(scenario: Scenario, bound: _Bound) -> Iterator[_Replicas]:
    """Yield the parts that several ranks have and that are trained from the start."""
    for spec in filter(is_managed, scenario.trainable):
        if not is_born(scenario, spec, 0) or is_frozen(scenario, spec, -1):
            continue
        for rank in range(scenario.mesh.num_ranks):
            ranks = contributing_ranks(scenario.mesh, spec, rank)
            if rank == ranks[0] and ranks[1:]:
                yield _replicas(scenario, spec, ranks, bound)


def _replicas(
    scenario: Scenario, spec: ParameterSpec, ranks: tuple[int, ...], bound: _Bound
) -> _Replicas:
    now = [bound[rank][spec.name] for rank in ranks]
    before = [start_value(scenario, spec, rank).to(now[0].dtype) for rank in ranks]
    return _Replicas(
        spec,
        ranks,
        are_equal=all(torch.equal(each, now[0]) for each in now),
        are_unchanged=all(map(torch.equal, now, before)),
    )
