"""Properties of gradient values."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from syncverify import agenda
from syncverify.decoding import Cause, explain
from syncverify.layout import local_shape, reduce_axes
from syncverify.oracle import trainable
from syncverify.owed import Owed
from syncverify.properties.judgement import Finding, Judgement
from syncverify.properties.mechanisms import mechanism
from syncverify.rounding import explain_rounded
from syncverify.run import Observation
from syncverify.scenario import ParameterSpec
from syncverify.trace import CollectiveLaunch
from syncverify.vocabulary import PLAIN

_SHOWN_ELEMENTS = 16


def gradient_equals_reference(judgement: Judgement) -> Iterator[Finding]:
    """After `wait()`, every reduced gradient equals naive DDP's, exactly.

    For all ranks, steps and trainable parameters that are replicated over some mesh
    axis: the local gradient is the sum (or mean, if the subject promises that) over the
    ranks that differ on those axes only, of all micro-batches of the step.

    Catches: wrong divisor, wrong ranks, lost or doubled micro-batches, stale buffers,
    swapped buckets. Does not promise that the gradient was safe to read on a GPU
    stream.
    """
    if judgement.scenario.module == PLAIN:  # others have gradients that round
        yield from compare(judgement, after_wait(judgement, reduced=True))


def unreduced_stay_local(judgement: Judgement) -> Iterator[Finding]:
    """After `wait()`, a gradient that no axis reduces is the rank's own, exactly.

    For all ranks, steps and parameters that are plain or sharded over every axis: the
    local gradient is the sum of the rank's own micro-batches. Frozen parameters have
    no gradient, or zeros.

    Catches: reducing over every rank because the axis was not looked at, scaling that
    touches local parameters, gradients of frozen parameters. Does not promise that nothing
    was exchanged: what is reduced and then undone passes.
    """
    if judgement.scenario.module == PLAIN:
        yield from compare(judgement, after_wait(judgement, reduced=False))
    for rank, step, spec in _places(judgement):
        observation = judgement.run.ranks[rank].at("reduced", step)
        if spec.requires_grad or observation is None:
            continue
        gradient = observation.gradients[spec.name]
        if gradient is not None and gradient.any():
            yield Finding(
                "frozen_received_gradient",
                f"frozen parameter {spec.name!r} received a gradient on rank {rank}, step {step}",
                rank,
                spec.name,
                {"rank": rank, "step": step, "observed": _values(gradient)},
            )


def accumulation_is_local_until_reduced(judgement: Judgement) -> Iterator[Finding]:
    """Before the last micro-batch of a step, gradients are local and nothing is reduced.

    For all ranks and steps: no reducing collective is issued before the backward of the
    last micro-batch, and after every earlier backward the local gradient is the sum of
    the rank's own micro-batches so far.

    Not asked of subjects that declare `reduces_each_micro_batch`.

    Catches: firing one accumulation early, resetting the accumulator in each backward.
    Does not hold a gradient that is kept elsewhere between micro-batches (`.grad` is
    None) against a subject.
    """
    if judgement.reference.capabilities.reduces_each_micro_batch:
        return
    early = list(_early_reductions(judgement))
    yield from early
    if early:  # the values that follow from it would only repeat the story
        return
    ends = itertools.chain(
        after_wait(judgement, reduced=True), after_wait(judgement, reduced=False)
    )
    yield from compare(judgement, _accumulated(judgement), ends)


def replicas_agree(judgement: Judgement) -> Iterator[Finding]:
    """After `wait()`, ranks that hold the same part of a parameter hold equal gradients.

    For all steps and parameters: any two ranks that differ only on axes over which the
    parameter is replicated observe bit-identical gradients.

    Catches: replicas that drift apart, whatever the right value is. Does not promise that
    the common value is right: `gradient_equals_reference` does.
    """
    for rank, step, spec in _places(judgement):
        if not (spec.requires_grad and reduce_axes(judgement.scenario.mesh, spec)):
            continue
        first = judgement.reference.contributors(spec, rank)[0]
        ours = judgement.run.ranks[rank].at("reduced", step)
        theirs = judgement.run.ranks[first].at("reduced", step)
        if rank == first or ours is None or theirs is None:
            continue
        mine, other = ours.gradients[spec.name], theirs.gradients[spec.name]
        if not _same(mine, other):
            yield Finding(
                "replicas_differ",
                f"{spec.name!r} is replicated on ranks {first} and {rank}, but its gradients "
                f"differ after wait() of step {step}",
                rank,
                spec.name,
                {
                    "step": step,
                    f"rank {first}": _values(other),
                    f"rank {rank}": _values(mine),
                },
            )


def _places(judgement: Judgement) -> Iterator[tuple[int, int, ParameterSpec]]:
    for step in range(judgement.scenario.num_steps):
        for spec in judgement.scenario.parameters:
            for rank in range(judgement.scenario.mesh.num_ranks):
                yield rank, step, spec


def after_wait(
    judgement: Judgement, *, reduced: bool
) -> Iterator[tuple[Owed, Observation]]:
    """Yield what each `wait()` owes and gave, of parameters reduced over an axis or not."""
    mesh = judgement.scenario.mesh
    for rank, step, spec in _places(judgement):
        if not spec.requires_grad or bool(reduce_axes(mesh, spec)) != reduced:
            continue
        observation = judgement.run.ranks[rank].at("reduced", step)
        if observation is None:
            continue
        owed = Owed(
            judgement.reference,
            spec,
            rank,
            step,
            agenda.num_backwards(judgement.scenario, step),
            judgement.reference.contributors(spec, rank),
            judgement.reference.divisor(spec, rank),
        )
        yield owed, observation


def _accumulated(judgement: Judgement) -> Iterator[tuple[Owed, Observation]]:
    for rank, rank_run in enumerate(judgement.run.ranks):
        for observation in rank_run.observations:
            if observation.micro_batch is None or judgement.was_refused(
                observation.step
            ):
                continue
            step, count = observation.step, observation.micro_batch + 1
            for spec in trainable(judgement.scenario):
                if observation.gradients[spec.name] is not None:
                    owed = Owed(
                        judgement.reference, spec, rank, step, count, (rank,), 1
                    )
                    yield owed, observation


def _early_reductions(judgement: Judgement) -> Iterator[Finding]:
    again: set[tuple[int, int]] | None = None  # costs much to know: if it is asked for
    for rank, rank_run in enumerate(judgement.run.ranks):
        for event in rank_run.events:
            if (
                not isinstance(event, CollectiveLaunch)
                or event.moment.micro_batch is None
            ):
                continue
            if judgement.was_refused(event.moment.step):
                continue
            count = agenda.num_agreed(judgement.scenario, event.moment.step)
            is_last = event.moment.micro_batch >= count - 1
            if event.reduces and not is_last:
                names = ", ".join(event.parameters)
                again = _reduced_again(judgement) if again is None else again
                is_again = (rank, event.moment.step) in again
                yield Finding(
                    "reduced_twice" if is_again else "reduced_early",
                    f"rank {rank} reduced in micro-batch {event.moment.micro_batch} of {count} "
                    f"(step {event.moment.step})"
                    f"{', and later reduced the result again' * is_again}: {event}",
                    rank,
                    names or None,
                    {
                        "rank": rank,
                        "collective": str(event),
                        "moment": str(event.moment),
                    },
                )


def _reduced_again(judgement: Judgement) -> set[tuple[int, int]]:
    """Find ranks and steps with right sums that were summed again: early ones lack nothing."""
    found = compare(judgement, after_wait(judgement, reduced=True))
    return {
        (finding.evidence["rank"], finding.evidence["step"])
        for finding in found
        if finding.cause == "reduced_twice" and finding.evidence
    }


def compare(
    judgement: Judgement,
    gradients: Iterable[tuple[Owed, Observation]],
    others: Iterable[tuple[Owed, Observation]] = (),
) -> Iterator[Finding]:
    """Explain all wrong gradients by as few kinds of causes as possible.

    A gradient of few elements may have several explanations. The one that also explains
    other gradients of the run, with more elements, is likelier to be true.

    Args:
        judgement: Of the run.
        gradients: What to explain, and what it should be.
        others: Of the same run: their explanations count, and are not yielded.

    Yields:
        What is wrong with each of `gradients`.
    """
    if judgement.scenario.module != PLAIN:
        yield from _compare_rounded(judgement, gradients)
        return
    wrong = [*_explained(gradients)]
    if not wrong:
        return
    num_elements: Counter[str] = Counter()
    for owed, _, cause in itertools.chain(_explained(others), wrong):
        num_elements[cause.kind] += owed.value().numel()
    ranking = [kind for kind, _ in num_elements.most_common()]
    for owed, observation, cause in wrong:
        observed = observation.gradients[owed.spec.name]
        for kind in ranking[: ranking.index(cause.kind)]:
            likelier = explain(owed, observed, only=kind)
            if likelier is not None and likelier.kind == kind:
                yield _finding(judgement, owed, observation, likelier)
                break
        else:
            yield _finding(judgement, owed, observation, cause)


def _explained(
    gradients: Iterable[tuple[Owed, Observation]],
) -> Iterator[tuple[Owed, Observation, Cause]]:
    for owed, observation in gradients:
        cause = explain(owed, observation.gradients[owed.spec.name])
        if cause is not None:
            yield owed, observation, cause


def _compare_rounded(
    judgement: Judgement, gradients: Iterable[tuple[Owed, Observation]]
) -> Iterator[Finding]:
    for owed, observation in gradients:
        cause = explain_rounded(owed, observation.gradients[owed.spec.name])
        if cause is not None:
            yield _finding(judgement, owed, observation, cause)


def _finding(
    judgement: Judgement, owed: Owed, observation: Observation, cause: Cause
) -> Finding:
    observed = observation.gradients[owed.spec.name]
    cause = mechanism(owed, observation, cause, judgement.run.ranks[owed.rank])
    return Finding(
        cause.kind,
        f"gradient of {owed.spec.name!r} on rank {owed.rank}, step {owed.step} is wrong: "
        f"{cause.text}",
        owed.rank,
        owed.spec.name,
        {
            "rank": owed.rank,
            "step": owed.step,
            "micro_batch": observation.micro_batch,
            "parameter": owed.spec.name,
            "local_shape": list(
                local_shape(judgement.scenario.mesh, owed.spec, owed.rank)
            ),
            "contributing_ranks": list(owed.ranks),
            "expected": _values(owed.value()),
            "observed": _values(observed),
            "explanation": cause.text,
            "collectives": _collectives(judgement, owed),
        },
    )


def _collectives(judgement: Judgement, owed: Owed) -> list[str]:
    """List this rank's reductions of the step that touched the parameter's gradient."""
    launches = [
        event
        for event in judgement.run.ranks[owed.rank].events
        if isinstance(event, CollectiveLaunch)
        and event.moment.step == owed.step
        and event.reduces
    ]
    touching = [event for event in launches if owed.spec.name in event.parameters]
    return [f"{event} ({event.moment})" for event in touching or launches]


def _same(left: torch.Tensor | None, right: torch.Tensor | None) -> bool:
    if left is None or right is None:
        return left is right
    return left.dtype == right.dtype and torch.equal(left, right)


def _values(tensor: torch.Tensor | None) -> list[float] | None:
    """Show the first elements, flattened."""
    if tensor is None:
        return None
    shown: list[Any] = tensor.to(torch.float64).reshape(-1)[:_SHOWN_ELEMENTS].tolist()
    return shown
