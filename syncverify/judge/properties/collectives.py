"""Properties of the reductions that a rank issues: how often, how large, and when."""

import itertools
from collections.abc import Iterator
from operator import attrgetter

import torch

from syncverify.judge.decoding import explain
from syncverify.judge.evidence import (
    Event,
    Evidence,
    Mistimed,
    ReducedTwice,
    TooFewElements,
    launched,
)
from syncverify.judge.properties.after_wait import (
    after_wait,
    on_all_ranks,
    owes_reduction,
)
from syncverify.judge.properties.circumstances import (
    after_like_step,
    with_circumstances,
)
from syncverify.judge.properties.judgement import (
    Judgement,
    Property,
    early_launches,
    launches_of_step,
)
from syncverify.judge.properties.sent import may_hold_gradients
from syncverify.judge.properties.values import compare
from syncverify.judge.reference import local_gradient
from syncverify.judge.traced import launches_of
from syncverify.judge.violation import CauseSign, Early, Violation, finding
from syncverify.scenario import layout, step_plan
from syncverify.trace.operations import POINT_TO_POINT
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.regions import overlap

# Causes of wrong gradients that come with too few elements.
_LOSSES = frozenset(
    map(CauseSign, ("not_reduced", "rank_contribution_missing", "hook_too_early"))
)


@Property(
    order=170,
    condition="A trainable parameter is replicated over two ranks or more.",
    applies=owes_reduction,
    example="a bucket that is launched twice, or never",
    needs_data=False,
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


def _wrong_steps(judgement: Judgement) -> Iterator[Violation]:
    scenario, promises = judgement.scenario, judgement.reference.capabilities
    for rank, rank_run in enumerate(judgement.run.ranks):
        for step in range(scenario.num_steps):
            launches = launches_of_step(rank_run.trace, step)
            # Late gradients must be added to reduced ones, so a second reduction is legal.
            is_late = scenario.step_event(step) == "extra_backward"
            if not (is_late or promises.reduces_each_micro_batch):
                reductions = [record for record in launches if record.reduces]
                yield from _reduced_twice(judgement, rank, step, reductions)
            # Owners of gradients get messages, and need not send any.
            operations = {each.operation for each in launches}
            goes_to_owners = judgement.has_owners and operations & POINT_TO_POINT
            if rank_run.at("reduced", step) is not None and not goes_to_owners:
                yield from _too_few_elements(judgement, rank, step, launches)


def _reduced_twice(
    judgement: Judgement, rank: int, step: int, launches: list[CollectiveLaunch]
) -> Iterator[Violation]:
    # The first of several earlier reductions is enough: their pairs are many.
    for place, second in enumerate(launches):
        for first in launches[:place]:
            if first.ranks == second.ranks and overlap(first.regions, second.regions):
                slots = (judgement.sent(rank, each).slots for each in (first, second))
                one, other = ({slot.parameter for slot in each} for each in slots)
                if one & other:
                    summary = (
                        f"rank {rank} reduced the same memory twice in step {step}"
                    )
                    events = launched(first), launched(second)
                    evidence = ReducedTwice(rank=rank, step=step, events=events)
                    names = tuple(sorted(one & other))
                    yield finding("reduced_twice", summary, rank, names, evidence)
                    break


def _too_few_elements(
    judgement: Judgement, rank: int, step: int, launches: list[CollectiveLaunch]
) -> Iterator[Violation]:
    scenario = judgement.scenario
    owed = sum(
        judgement.numel(spec.name, rank)
        for spec in scenario.trainable
        if len(ranks := layout.contributing_ranks(scenario.mesh, spec, rank)) > 1
        and step_plan.has_gradient(scenario, spec, ranks, step)
    )
    # An all-gather whose parts are summed locally reduces as well. A collective that reduces
    # nothing moves bytes: two elements of 16 bits fit into a word of 32 bits.
    least = min(map(layout.itemsize, scenario.trainable), default=1)
    exchanged = 0
    for launch in launches:
        exchanged += launch.numel
        if not launch.reduces and launch.numel:
            moved_bytes = launch.numel * int(getattr(torch, launch.dtype).itemsize)
            exchanged += max(0, moved_bytes // least - launch.numel)
    # Values may show that all gradients of the rank are reduced in the step.
    is_right = (
        explain(expected, observation.gradients[expected.spec.name]) is None
        for expected, observation in on_all_ranks(judgement, reduced=True)
        if expected.rank == rank and observation.step == step
    )
    if exchanged < owed and not (judgement.run.carries_data and all(is_right)):
        sent = f"but exchanged {exchanged} in {len(launches)} collectives"
        summary = f"rank {rank} has to reduce {owed} elements in step {step}, {sent}"
        evidence = TooFewElements(
            rank=rank,
            step=step,
            owed_numel=owed,
            exchanged_numel=exchanged,
            events=tuple(map(launched, launches)),
        )
        yield finding(
            "not_reduced", summary, rank, None, evidence, explained_by=_LOSSES
        )


def _keeps_a_cap(judgement: Judgement) -> bool:
    scenario, promises = judgement.scenario, judgement.reference.capabilities
    reduced = [s for s in scenario.trainable if layout.reduce_axes(scenario.mesh, s)]
    return promises.keeps_bucket_cap and len(reduced) > 1


@Property(
    order=180,
    condition="The subject promises to keep the bucket cap, and two gradients or more are reduced.",
    applies=_keeps_a_cap,
    example="a cap that is ignored, or that counts elements as bytes, where the contract promises `keeps_bucket_cap`",
    needs_data=False,
    promise="keeps_bucket_cap",
)
def bucket_fits_the_cap(judgement: Judgement) -> Iterator[Violation]:
    """Gradients that are reduced together fit the bucket cap, which counts bytes of one rank.

    For all ranks and reductions that send several gradients: their local parts, in the
    dtypes of the gradients, have no more bytes together than the cap. Judged for
    subjects that declare `keeps_bucket_cap`.

    Catches: a cap that is ignored, or counted in elements, or in bytes of all ranks. Does not
    judge small buckets, padding and other wire formats, nor a large gradient alone.
    """
    if not judgement.reference.capabilities.keeps_bucket_cap:
        return
    cap, mesh = judgement.scenario.bucket_cap_bytes, judgement.scenario.mesh
    for rank, trace in enumerate(judgement.traces):
        for launch in filter(attrgetter("reduces"), launches_of(trace)):
            names = judgement.sent(rank, launch).names or ()
            specs = [e for e in judgement.scenario.trainable if e.name in names]
            num_bytes = sum(layout.local_bytes(mesh, spec, rank) for spec in specs)
            numel = sum(judgement.numel(name, rank) for name in names)
            # More elements than are sent: gradients of equal values have one place.
            if len(names) > 1 and num_bytes > cap and numel <= launch.numel:
                line, moment = launch.source, launch.moment
                summary = (
                    f"{launch.operation} at {line} ({moment}) has gradients of "
                    f"{', '.join(names)} with {num_bytes} bytes together; the cap is {cap}"
                )
                facts = {"bytes": num_bytes, "cap": cap}
                evidence = Evidence(rank=rank, named=(line,), facts=facts)
                yield finding("over_cap", summary, rank, None, evidence)


@Property(
    order=50,
    condition="A step has two micro-batches or more, and gradients were read between them.",
    applies=lambda seen: seen.was_seen("accumulated"),
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
    accumulated = (
        (
            local_gradient(judgement.reference, spec, rank, seen.step, micro_batch + 1),
            seen,
        )
        for rank, seen in judgement.seen("accumulated")
        if (micro_batch := seen.micro_batch) is not None
        and not judgement.was_refused(seen.step)
        for spec in judgement.scenario.trainable
        if seen.gradients[spec.name] is not None
    )
    ends = (after_wait(judgement, reduced=is_reduced) for is_reduced in (True, False))
    yield from compare(judgement, accumulated, itertools.chain.from_iterable(ends))


def _early_reductions(judgement: Judgement) -> Iterator[Violation]:
    early = [
        (rank, record)
        for rank in range(judgement.scenario.mesh.num_ranks)
        for record in early_launches(judgement, rank)
        if record.reduces
        and may_hold_gradients(judgement.reference, judgement.run, record)
    ]
    if not early:
        return
    # Ranks and steps in which complete sums were summed again.
    wrong = compare(judgement, after_wait(judgement, reduced=True))
    twice = (found.evidence for found in wrong if found.cause == "reduced_twice")
    again = {(each.rank, each.step) for each in twice}
    first_step = min(record.moment.step for _, record in early)
    left_over = after_like_step(judgement.scenario, first_step)
    for rank, record in early:
        step, micro_batch = record.moment.step, record.moment.micro_batch
        count = step_plan.num_agreed_micro_batches(judgement.scenario, step)
        cause, later = "reduced_early", ""
        if (rank, step) in again:
            cause, later = "reduced_twice", ", and later reduced the result again"
        sign, names = frozenset({Early(record.source)}), record.parameters
        place = f"micro-batch {micro_batch} of {count} (step {step})"
        summary = f"rank {rank} reduced in {place}{later}: {record}"
        evidence = Mistimed(rank=rank, step=step, events=(Event("", record),))
        yield finding(cause, summary, rank, names, evidence, sign | left_over, sign)
