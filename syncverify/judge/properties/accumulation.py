"""The property of gradients between the micro-batches of a step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from syncverify.judge.evidence import Event, Mistimed
from syncverify.judge.properties.after_wait import AfterWait, after_wait
from syncverify.judge.properties.circumstances import (
    after_like_step,
    with_circumstances,
)
from syncverify.judge.properties.judgement import Judgement, early_launches
from syncverify.judge.properties.property import Property
from syncverify.judge.properties.sent import may_hold_gradients
from syncverify.judge.properties.values import compare
from syncverify.judge.reference import local_gradient
from syncverify.judge.violation import Early, Violation, finding
from syncverify.scenario import step_plan


def accumulates(judgement: Judgement) -> bool:
    """A step has two micro-batches or more, and gradients were read between them."""
    return any(seen.micro_batch is not None for seen in judgement.observations)


@Property(
    order=50,
    applies=accumulates,
    example="a bucket that fires one micro-batch early",
    needs_data=False,
    leads_to=(
        "reduce_reads_after_accumulation",
        "bucket_is_exclusive_while_reducing",
        "collectives_match_across_ranks",
        "each_bucket_reduced_once_per_step",
    ),
)
def accumulation_is_local_until_reduced(judgement: Judgement) -> Iterator[Violation]:
    """Before the last micro-batch of a step, gradients are local and nothing is reduced.

    For all ranks and steps: no reducing collective is issued before the backward of the
    last micro-batch, and after every earlier backward the local gradient is the sum of
    the rank's own micro-batches so far. Control numbers, such as a count of tokens, may be
    reduced at any time: they are no gradients of any rank, scaled or not.

    Not judged for subjects that declare `reduces_each_micro_batch`.

    Catches: firing one accumulation early, resetting the accumulator in each backward.
    Does not hold a gradient that is kept elsewhere between micro-batches (`.grad` is
    None) against a subject.
    """
    if judgement.reference.capabilities.reduces_each_micro_batch:
        return
    early = list(_early_reductions(judgement))
    yield from with_circumstances(judgement, early)
    if early:  # the wrong values follow from the reduction
        return
    ends = itertools.chain(
        after_wait(judgement, reduced=True), after_wait(judgement, reduced=False)
    )
    yield from compare(judgement, _accumulated(judgement), ends)


def _accumulated(judgement: Judgement) -> Iterator[AfterWait]:
    reference = judgement.reference
    for rank, rank_run in enumerate(judgement.run.ranks):
        for seen in rank_run.observations:
            if seen.micro_batch is None or judgement.was_refused(seen.step):
                continue
            for spec in judgement.scenario.trainable:
                if seen.gradients[spec.name] is not None:
                    count = seen.micro_batch + 1
                    yield (
                        local_gradient(reference, spec, rank, seen.step, count),
                        seen,
                    )


def _early_reductions(judgement: Judgement) -> Iterator[Violation]:
    early = [
        (rank, record)
        for rank in range(judgement.scenario.mesh.num_ranks)
        for record in early_launches(judgement, rank)
        if record.reduces
        and may_hold_gradients(judgement.reference, judgement.run, record)
    ]
    again = _reduced_again(judgement) if early else set()
    first_step = min((record.moment.step for _, record in early), default=0)
    left_over = after_like_step(judgement.scenario, first_step)
    for rank, record in early:
        step, micro_batch = record.moment.step, record.moment.micro_batch
        count = step_plan.num_agreed_micro_batches(judgement.scenario, step)
        is_again = (rank, step) in again
        sign = frozenset({Early(record.source)})
        later = ", and later reduced the result again" if is_again else ""
        yield finding(
            "reduced_twice" if is_again else "reduced_early",
            f"rank {rank} reduced in micro-batch {micro_batch} of {count} "
            f"(step {step}){later}: {record}",
            rank,
            record.parameters,
            Mistimed(rank=rank, step=step, events=(Event("", record),)),
            shows=sign | left_over,
            explained_by=sign,
        )


def _reduced_again(judgement: Judgement) -> set[tuple[int | None, int | None]]:
    """Find ranks and steps in which complete sums were summed again."""
    found = compare(judgement, after_wait(judgement, reduced=True))
    return {
        (finding.evidence.rank, finding.evidence.step)
        for finding in found
        if finding.cause == "reduced_twice"
    }
