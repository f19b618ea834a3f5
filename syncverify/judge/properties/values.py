"""Properties of the gradients that `wait()` leaves: their values, and all but the values."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from syncverify.judge.causes import VALUE_CAUSES
from syncverify.judge.decoding import explain, same_values
from syncverify.judge.evidence import (
    DifferentReplicas,
    Elements,
    Evidence,
    FrozenGradient,
    WrongGradient,
    launched,
)
from syncverify.judge.properties import circumstances
from syncverify.judge.properties.after_wait import (
    AfterWait,
    after_wait,
    each_after_wait,
    owes_reduction,
    wrong_owners,
)
from syncverify.judge.properties.factors import Wrong, reductions_of, with_factors
from syncverify.judge.properties.judgement import Judgement, Property
from syncverify.judge.properties.mechanisms import mechanism
from syncverify.judge.rounding import explain_rounded
from syncverify.judge.violation import Cause, Signs, Violation, finding
from syncverify.scenario.features import overflows
from syncverify.scenario.layout import local_shape, reduce_axes

# Mistakes of these properties also give wrong numbers.
_FOLLOWS = (
    "zero_grad_clears",
    "accumulation_is_local_until_reduced",
    "reduce_reads_after_accumulation",
    "bucket_is_exclusive_while_reducing",
    "wait_orders_reads_after_reduce",
    "memory_outlives_its_streams",
    "collectives_match_across_ranks",
    "every_rank_finishes",
    "every_wait_completes",
)
_SHOWN_ELEMENTS = 16
_SHOWN_READINGS = 3


def _unreduced_gradient_seen(judgement: Judgement) -> bool:
    mesh, specs = judgement.scenario.mesh, judgement.scenario.parameters
    return judgement.was_seen("reduced") and any(
        not (spec.requires_grad and reduce_axes(mesh, spec)) for spec in specs
    )


def _reduced_gradient_seen(judgement: Judgement) -> bool:
    return owes_reduction(judgement) and judgement.was_seen("reduced")


@Property(
    order=110,
    condition="A parameter is replicated, a `wait()` returned, and gradients are whole numbers.",
    applies=lambda seen: not seen.reference.rounds and _reduced_gradient_seen(seen),
    example="wrong divisor, wrong ranks, lost or doubled micro-batches",
    follows=_FOLLOWS,
    is_about_values=True,
)
def gradient_equals_reference(judgement: Judgement) -> Iterator[Violation]:
    """After `wait()`, every reduced gradient equals naive DDP's, exactly.

    For all ranks, steps and trainable parameters that are replicated over some mesh
    axis: the local gradient is the sum (or mean, if the subject promises that) over the
    ranks that differ on those axes only, of all micro-batches of the step. Of a subject
    that declares `gradients="owner"`, this holds on one of these ranks at least, and on
    the same one in all steps.

    A DTensor that holds the sum must not be marked `Partial`: an optimizer would sum it again.

    Catches: wrong divisor, wrong ranks, lost or doubled micro-batches, stale buffers,
    swapped buckets. Does not promise that the gradient was safe to use on a GPU
    stream.
    """
    if not judgement.reference.rounds:
        yield from wrong_owners(judgement)
        yield from compare(judgement, after_wait(judgement, reduced=True))
        for expected, observation in after_wait(judgement, reduced=True):
            name, rank, step = expected.spec.name, expected.rank, expected.step
            is_marked = name in observation.partial
            if is_marked and explain(expected, observation.gradients[name]) is None:
                summary = (
                    f"gradient of {name!r} on rank {rank}, step {step} is summed and still "
                    "marked Partial: an optimizer that uses it sums it again"
                )
                evidence = Evidence(rank=rank, step=step)
                yield finding("still_partial", summary, rank, name, evidence)


@Property(
    order=120,
    condition="A real module is trained, or sums round on the wire, and a `wait()` returned.",
    applies=lambda seen: seen.reference.rounds and seen.was_seen("reduced"),
    example="on real modules: a wire format that keeps little but whole numbers",
    follows=_FOLLOWS,
    is_about_values=True,
)
def gradient_is_within_rounding(judgement: Judgement) -> Iterator[Violation]:
    """After `wait()`, a real module's gradient is as near naive DDP's as rounding allows.

    For all ranks, steps and trainable parameters of scenarios that train a module, or that send
    whole numbers which round in the contract's `wire_dtype`, be they reduced or not: each element of the local gradient differs from the exact sum (or mean)
    by no more than sums in any order may. The bound is derived, not chosen: see Note [What
    rounding can do] in `syncverify/judge/rounding.py`.

    Catches: defects that only real gradients show, such as a wire format that keeps whole
    numbers and little else, or a gradient whose memory format differs from its parameter's; and
    all defects that whole numbers show. Does not require the nearest number:
    `gradient_equals_reference` does, on sums of products, whose gradients are exact.
    """
    if not judgement.reference.rounds:
        return
    yield from wrong_owners(judgement)
    for is_reduced in (True, False):
        yield from compare(judgement, after_wait(judgement, reduced=is_reduced))


@Property(
    order=150,
    condition="A parameter is frozen or no axis reduces it, and a `wait()` returned.",
    applies=_unreduced_gradient_seen,
    example="sharded or ordinary parameters that are reduced after all",
    follows=_FOLLOWS,
    is_about_values=True,
)
def unreduced_stay_local(judgement: Judgement) -> Iterator[Violation]:
    """After `wait()`, a gradient that no axis reduces is the rank's own, exactly.

    For all ranks, steps and parameters that are ordinary tensors or sharded over every axis: the
    local gradient is the sum of the rank's own micro-batches. Frozen parameters have
    no gradient, or zeros.

    Catches: reducing over every rank because the axis was not looked at, scaling that
    touches local parameters, gradients of frozen parameters. Does not promise that nothing
    was exchanged: a reduction that is undone passes.
    """
    if not judgement.reference.rounds:
        yield from compare(judgement, after_wait(judgement, reduced=False))
    for rank, observation, spec in each_after_wait(judgement):
        gradient, step = observation.gradients[spec.name], observation.step
        if not spec.requires_grad and gradient is not None and gradient.any():
            name, place = spec.name, f"on rank {rank}, step {step}"
            summary = f"frozen parameter {name!r} received a gradient {place}"
            evidence = FrozenGradient(rank=rank, step=step, observed=_values(gradient))
            yield finding("frozen_received_gradient", summary, rank, name, evidence)


@Property(
    order=140,
    condition="Gradients are promised on all ranks, a parameter is replicated, and a `wait()` "
    "returned.",
    applies=lambda seen: not seen.has_owners and _reduced_gradient_seen(seen),
    example="replicas that drift apart",
    follows=(
        "gradient_equals_reference",
        "gradient_is_within_rounding",
        "unreduced_stay_local",
    ),
)
def replicas_agree(judgement: Judgement) -> Iterator[Violation]:
    """After `wait()`, ranks that hold the same part of a parameter hold equal gradients.

    For all steps and parameters: any two ranks that differ only on axes over which the
    parameter is replicated observe bit-identical gradients. Not judged for subjects that
    declare `gradients="owner"`.

    Catches: replicas that drift apart. Does not promise that
    the common value is right: `gradient_equals_reference` does.
    """
    if judgement.has_owners:
        return
    for rank, ours, spec in each_after_wait(judgement):
        if not (spec.requires_grad and reduce_axes(judgement.scenario.mesh, spec)):
            continue
        first, step = judgement.reference.contributors(spec, rank)[0], ours.step
        theirs = judgement.run.ranks[first].at("reduced", step)
        if rank == first or theirs is None:
            continue
        mine, other = ours.gradients[spec.name], theirs.gradients[spec.name]
        is_same = mine is other
        if mine is not None and other is not None:
            is_same = mine.dtype == other.dtype and same_values(mine, other)
        if not is_same:
            summary = (
                f"{spec.name!r} is replicated on ranks {first} and {rank}, but its gradients "
                f"differ after wait() of step {step}"
            )
            gradients = {first: _values(other), rank: _values(mine)}
            evidence = DifferentReplicas(step=step, gradients=gradients)
            yield finding("replicas_differ", summary, rank, spec.name, evidence)


@Property(
    order=130,
    condition="A `wait()` returned.",
    applies=lambda seen: seen.was_seen("reduced"),
    example="an ordinary tensor for a DTensor, another mesh, a graph that is kept",
    needs_data=False,
)
def gradient_has_form_of_parameter(judgement: Judgement) -> Iterator[Violation]:
    """After `wait()`, a gradient has the type, mesh, placements and strides that torch alone gives.

    For all ranks, steps and trainable parameters: the gradient of a DTensor is a DTensor of the
    parameter's mesh and placements, its strides are the parameter's or row-major, and neither a
    graph nor inference mode keeps an optimizer from writing it in place. A gradient that
    `create_graph=True` made may have a graph.

    Catches: results that are assigned in the form of the flat buffer, as ordinary tensors, on a
    flattened mesh, from a differentiable collective or under `inference_mode()`. Does not
    promise the numbers: `gradient_equals_reference` does.
    """
    may_have_graph = judgement.scenario.backward == "create_graph"
    for rank, observation, spec in each_after_wait(judgement):
        if judgement.was_refused(observation.step):
            continue
        for cause, text in observation.misfits.get(spec.name, ()):
            if cause == "keeps_graph" and may_have_graph:
                continue
            summary = (
                f"gradient of {spec.name!r} on rank {rank}, step {observation.step} has another "
                f"form than torch alone gives it: {text}"
            )
            evidence = Evidence(rank=rank, step=observation.step)
            yield finding(cause, summary, rank, spec.name, evidence)


def compare(
    judgement: Judgement,
    gradients: Iterable[AfterWait],
    others: Iterable[AfterWait] = (),
) -> Iterator[Violation]:
    """Explain all wrong gradients by as few kinds of causes as possible, a finding for each.

    A gradient of few elements may have several explanations. The likeliest one is that
    which also explains other gradients of the run, with more elements. Explanations of
    `others` count, but are not yielded.
    """
    if judgement.reference.rounds:
        causes = _explained(gradients, explain_rounded)
    else:
        causes = _by_few_kinds(judgement, gradients, others)
    yield from circumstances.with_circumstances(judgement, _findings(judgement, causes))


def _explained(
    gradients: Iterable[AfterWait], explained_by: Callable[..., Cause | None] = explain
) -> Iterator[Wrong]:
    for expected, observation in gradients:
        cause = explained_by(expected, observation.gradients[expected.spec.name])
        if cause is not None:
            yield expected, observation, cause


def _by_few_kinds(
    judgement: Judgement, gradients: Iterable[AfterWait], others: Iterable[AfterWait]
) -> Iterator[Wrong]:
    wrong = with_factors(judgement, [*_explained(gradients)])
    num_elements: Counter[str] = Counter()
    every = itertools.chain(_explained(others if wrong else ()), wrong)
    for expected, _, cause in every:
        num_elements[cause.kind] += expected.value().numel()
    ranking = [kind for kind, _ in num_elements.most_common()]
    for expected, observation, cause in wrong:
        observed = observation.gradients[expected.spec.name]
        kinds = ranking[: ranking.index(cause.kind)]
        likelier = ((kind, explain(expected, observed, only=kind)) for kind in kinds)
        fitting = (each for kind, each in likelier if each and each.kind == kind)
        yield expected, observation, next(fitting, cause)


def _findings(judgement: Judgement, wrong: Iterable[Wrong]) -> Iterator[Violation]:
    """Yield a finding for each wrong gradient, with what else may explain it."""
    own = judgement.reference.capabilities
    # Kinds that nothing else explains, and all kinds: the first finding of a kind is the one
    # that a report shows, and the only one with further readings.
    apart, seen = set[str](), set[str]()
    for expected, observation, decoded in wrong:
        name, rank, step = expected.spec.name, expected.rank, expected.step
        observed, rank_run = observation.gradients[name], judgement.run.ranks[rank]
        cause = mechanism(expected, observation, decoded, rank_run)
        is_proven = cause is not decoded
        signs: Signs = frozenset()
        # One finding apart is enough, and the others take long.
        if cause.kind not in apart:
            signs = circumstances.other_signs(
                judgement, expected, observed, cause, is_proven=is_proven
            )
        if not signs:
            apart.add(cause.kind)
        # Without an overflow, nothing may have come here from another gradient.
        is_infinite = cause.kind == "not_finite"
        is_proven |= is_infinite and not overflows(judgement.scenario)
        is_open = not is_proven and cause.kind in VALUE_CAUSES - seen
        readings = (
            circumstances.other_readings(expected, observed, cause) if is_open else []
        )
        seen.add(cause.kind)
        reductions = reductions_of(judgement, expected)
        shows = circumstances.shown_signs(cause, observed, reductions)
        place = f"{name!r} on rank {rank}, step {step}"
        summary = f"gradient of {place} is wrong: {cause.text}"
        evidence = WrongGradient(
            rank=rank,
            step=step,
            named=cause.lines,
            micro_batch=observation.micro_batch,
            parameter=name,
            local_shape=local_shape(judgement.scenario.mesh, expected.spec, rank),
            contributing_ranks=expected.ranks,
            reduction="factor" if own.divide_factor else own.reduction,
            expected=_values(expected.value()),
            observed=_values(observed),
            explanation=cause.text,
            events=tuple(map(launched, reductions)),
            is_proven=is_proven,
            is_certain=cause.is_certain,
            readings=tuple(readings[:_SHOWN_READINGS]),
        )
        yield finding(cause.kind, summary, rank, name, evidence, shows, signs)


def _values(tensor: torch.Tensor | None) -> Elements:
    """Return the first elements, flattened."""
    if tensor is None:
        return None
    shown: list[Any] = tensor.to(torch.float64).reshape(-1)[:_SHOWN_ELEMENTS].tolist()
    return shown
