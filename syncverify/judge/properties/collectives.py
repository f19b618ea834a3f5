"""Properties of the collectives that a rank issues."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from syncverify.judge.decoding import explain
from syncverify.judge.evidence import ReducedTwice, TooFewElements, launched
from syncverify.judge.properties.after_wait import on_all_ranks, owes_reduction
from syncverify.judge.properties.circumstances import with_circumstances
from syncverify.judge.properties.judgement import Judgement, launches_of_step
from syncverify.judge.properties.property import Property
from syncverify.judge.properties.sent import true_slots
from syncverify.judge.signs import CauseSign
from syncverify.judge.violation import Violation, finding
from syncverify.scenario import step_plan
from syncverify.scenario.layout import contributing_ranks, local_shape
from syncverify.trace.operations import POINT_TO_POINT
from syncverify.trace.records import CollectiveLaunch

# Causes of wrong gradients that come with too few elements.
_LOSSES = frozenset(
    map(CauseSign, ("not_reduced", "rank_contribution_missing", "hook_too_early"))
)


def each_bucket_reduced_once_per_step(judgement: Judgement) -> Iterator[Violation]:
    """In every step, each byte that has to be reduced is reduced once over the same ranks.

    For all ranks and steps: no two reductions over the same ranks touch a common byte of the
    same parameter's `.grad`. A rank exchanges at least as many elements as its parameters must
    have reduced. Exceptions are messages to owners of gradients, and gradients that are right
    because they came through the store. Collectives over one rank, and a staging buffer that
    several buckets share, do not count. A second reduction is legal for subjects that declare
    `reduces_each_micro_batch`, and in a step with an extra backward.

    Catches: a bucket launched twice, a bucket that is never launched, reductions of
    single parameters on top of their bucket. Does not say that the right bytes were
    reduced: `gradient_equals_reference` does.
    """
    yield from with_circumstances(judgement, _wrong_steps(judgement))


EACH_BUCKET_REDUCED_ONCE_PER_STEP = Property(
    each_bucket_reduced_once_per_step,
    order=170,
    applies=owes_reduction,
    example="a bucket that is launched twice, or never",
    needs_data=False,
)


def _wrong_steps(judgement: Judgement) -> Iterator[Violation]:
    for rank, rank_run in enumerate(judgement.run.ranks):
        for step in range(judgement.scenario.num_steps):
            launches = launches_of_step(rank_run.trace, step)
            reductions = [record for record in launches if record.reduces]
            # Late gradients must be added to reduced ones, so a second reduction is legal.
            if (
                not judgement.reference.capabilities.reduces_each_micro_batch
                and judgement.scenario.step_event(step) != "extra_backward"
            ):
                yield from _reduced_twice(judgement, rank, step, reductions)
            if rank_run.at("reduced", step) is not None and not (
                _is_sent_to_owners(judgement, launches)
            ):
                yield from _too_few_elements(judgement, rank, step, launches)


def _is_sent_to_owners(judgement: Judgement, launches: list[CollectiveLaunch]) -> bool:
    """Tell whether messages go to owners of gradients, who need not send any."""
    is_owner = judgement.reference.capabilities.gradients == "owner"
    return is_owner and any(each.operation in POINT_TO_POINT for each in launches)


def _reduced_twice(
    judgement: Judgement, rank: int, step: int, launches: list[CollectiveLaunch]
) -> Iterator[Violation]:
    # The first of several earlier reductions is enough: their pairs are many.
    for place, second in enumerate(launches):
        pairs = (
            (first, _in_both(judgement, rank, first, second))
            for first in launches[:place]
            if first.ranks == second.ranks and _overlap(first, second)
        )
        first, common = next((pair for pair in pairs if pair[1]), (second, []))
        if common:
            yield finding(
                "reduced_twice",
                f"rank {rank} reduced the same memory twice in step {step}",
                rank,
                tuple(common),
                ReducedTwice(
                    rank=rank,
                    step=step,
                    events=(launched(first), launched(second)),
                ),
            )


def _in_both(
    judgement: Judgement, rank: int, first: CollectiveLaunch, second: CollectiveLaunch
) -> list[str]:
    """Name the parameters with a gradient in both reductions, in order."""
    named = (_named(judgement, rank, each) for each in (first, second))
    return sorted(set.intersection(*named))


def _named(judgement: Judgement, rank: int, launch: CollectiveLaunch) -> set[str]:
    return {s.parameter for s in true_slots(judgement.reference, rank, launch)}


def _overlap(first: CollectiveLaunch, second: CollectiveLaunch) -> bool:
    return any(a.overlaps(b) for a in first.regions for b in second.regions)


def _too_few_elements(
    judgement: Judgement, rank: int, step: int, launches: list[CollectiveLaunch]
) -> Iterator[Violation]:
    scenario = judgement.scenario
    owed = sum(
        math.prod(local_shape(scenario.mesh, spec, rank))
        for spec in scenario.trainable
        if len(ranks := contributing_ranks(scenario.mesh, spec, rank)) > 1
        and step_plan.has_gradient(scenario, spec, ranks, step)
    )
    # An all-gather whose parts are summed locally reduces as well.
    exchanged = sum(_num_exchanged(judgement, launch) for launch in launches)
    if exchanged < owed and not _is_right(judgement, rank, step):
        yield finding(
            "not_reduced",
            f"rank {rank} has to reduce {owed} elements in step {step}, but exchanged "
            f"{exchanged} in {len(launches)} collectives",
            rank,
            None,
            TooFewElements(
                rank=rank,
                step=step,
                owed_numel=owed,
                exchanged_numel=exchanged,
                events=tuple(map(launched, launches)),
            ),
            explained_by=_LOSSES,
        )


def _num_exchanged(judgement: Judgement, launch: CollectiveLaunch) -> int:
    """Count the gradient elements that a collective has room for."""
    # A collective that reduces nothing moves bytes: two elements of 16 bits fit into a word
    # of 32 bits.
    if launch.reduces or not launch.numel:
        return launch.numel
    dtypes = {spec.effective_grad_dtype for spec in judgement.scenario.trainable}
    moved_bytes = launch.numel * _width(launch.dtype)
    return max(launch.numel, moved_bytes // min(map(_width, dtypes)))


def _width(dtype: str) -> int:
    """Return the bytes of one element."""
    found: torch.dtype = getattr(torch, dtype)
    return found.itemsize


def _is_right(judgement: Judgement, rank: int, step: int) -> bool:
    """Tell whether values show that all gradients of a rank are reduced in a step."""
    return judgement.run.carries_data and all(
        explain(expected, observation.gradients[expected.spec.name]) is None
        for expected, observation in on_all_ranks(judgement, reduced=True)
        if expected.rank == rank and observation.step == step
    )
