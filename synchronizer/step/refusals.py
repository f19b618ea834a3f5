"""Refusals of a call because of the gradients of the step, by name and bucket."""

from collections.abc import Iterable, Mapping

import torch
from torch import nn

from syncverify.synchronizer.bucket.bucket import Bucket, BucketState
from syncverify.synchronizer.bucket.gradient_view import GradientView
from syncverify.synchronizer.contract.errors import (
    BucketNotReadyError,
    GradientMismatchError,
    LifecycleError,
    NonFiniteGradientError,
    ReplacedGradientError,
    UnfrozenParameterError,
)
from syncverify.synchronizer.step.sequence import BucketSequence


def refuse_unfrozen_parameters(frozen: Mapping[str, nn.Parameter], call: str) -> None:
    """Refuse to end a step that trains a parameter without a place in a bucket."""
    unfrozen = [name for name, parameter in frozen.items() if parameter.requires_grad]
    if unfrozen:
        raise UnfrozenParameterError(
            f"a parameter was unfrozen after bind() and before {call}",
            expected="requires_grad as it was at bind()",
            got=f"requires_grad=True at {', '.join(unfrozen)}",
            where="no bucket: nothing would sum its gradient",
        )


def refuse_replaced_parameters(sequence: BucketSequence, module: nn.Module) -> None:
    """Refuse to end a step without a gradient for a parameter that a module has replaced."""
    unused = [view.plan for bucket in sequence.buckets for view in bucket.unused()]
    current = dict(module.named_parameters()) if unused else {}
    replaced = [
        plan.name
        for plan in unused
        if plan.name in current and current[plan.name] is not plan.parameter
    ]
    if replaced:
        raise UnfrozenParameterError(
            "the parameters of a module have changed since bind()",
            expected="the same parameters, as load_state_dict(assign=False) keeps them",
            got=f"another parameter at {', '.join(replaced)}",
            where="no bucket: nothing would sum its gradient",
        )


def refuse_exchanged_parameters(sequence: BucketSequence) -> None:
    """Refuse to end a step in which gradients may have come past the hooks."""
    exchanged = sequence.exchanged()
    if exchanged:
        raise GradientMismatchError(
            "a parameter was exchanged for another tensor after bind()",
            expected="the tensors that bind() gave its hooks to",
            got="others, without hooks, at "
            + ", ".join(view.plan.name for view in exchanged),
            where="no bucket: nothing would count their gradients",
            hint="call unbind() before module.to(), which exchanges each DTensor, and bind()"
            " after it",
        )


def refuse_missing_gradients(sequence: BucketSequence, call: str) -> None:
    """Refuse `wait()` without all gradients, and `flush()` without one of each parameter."""
    required, buckets = sequence.known_count(call), sequence.buckets
    if call == "flush()":
        missing = [(bucket, view) for bucket in buckets for view in bucket.unused()]
        moment, number = "every parameter had a gradient", "1 accumulation or more"
    else:
        missing = [(bucket, view) for bucket in buckets for view in bucket.unfinished()]
        moment, number = "every gradient was accumulated", f"{required} accumulations"
    if missing:
        counts = (f"{view.plan.name} {view.num_accumulations}" for _, view in missing)
        raise BucketNotReadyError(
            f"{call} was called before {moment}",
            expected=f"{number} each (require_accumulations={required})",
            got=", ".join(counts),
            where=_labels(bucket for bucket, _ in missing),
        )


def refuse_missing_backwards(sequence: BucketSequence) -> None:
    """Refuse to end a step in which fewer backwards ran than it requires."""
    required = sequence.known_count("wait()")
    missing = [b for b in sequence.buckets if b.unfinished()]
    if missing and sequence.num_backwards < required:
        raise BucketNotReadyError(
            "wait() was called before every backward of the step",
            expected=f"{required} backwards (require_accumulations={required})",
            got=f"{sequence.num_backwards}",
            where=_labels(missing),
        )


@torch.no_grad()  # here, because it is slow for each gradient
def refuse_replaced_gradients(sequence: BucketSequence) -> None:
    """Refuse a `.grad` that has replaced a packed gradient, before its bucket is reduced."""
    replaced = _replaced(
        b
        for b in sequence.buckets
        if b.is_packed and b.state is not BucketState.REDUCED
    )
    if replaced:
        sequence.fail()
        raise ReplacedGradientError(
            "a gradient was replaced after the last backward and before wait()",
            expected="every .grad to be the view that is being summed",
            got=f"another .grad at {_names(replaced)}",
            where=_labels(bucket for bucket, _ in replaced),
        )


@torch.no_grad()  # here, because it is slow for each gradient
def refuse_replaced_results(sequence: BucketSequence, call: str) -> None:
    """Refuse to scale or to measure gradients that are not in `.grad` any more."""
    replaced = _replaced(sequence.buckets)
    if replaced:
        raise ReplacedGradientError(
            f"a gradient was replaced before {call}",
            expected="every .grad to be the view that was summed",
            got=f"another .grad at {_names(replaced)}",
            where=_labels(bucket for bucket, _ in replaced),
            hint=f"change .grad in place between wait() and {call}, or assign to it after",
        )


def refuse_reduced_step(sequence: BucketSequence) -> None:
    """Refuse a second scale through `wait()`."""
    if sequence.is_reduced:
        raise LifecycleError(
            "wait(scale=...) was called on a step that was waited for before",
            expected="one wait(scale=...) in a step, the first wait()",
            got="gradients that were given to the caller already",
            hint="give the scale to the first wait(), or use scale_grads() after it",
        )


def refuse_unreduced_step(sequence: BucketSequence, call: str) -> None:
    """Refuse to use gradients that were not waited for."""
    if not sequence.is_reduced:
        unreduced = [b for b in sequence.buckets if b.state is not BucketState.REDUCED]
        raise LifecycleError(
            f"{call} was called before wait()",
            expected=f"{call} between wait() and zero_grad()",
            got=f"{len(unreduced)} of {len(sequence.buckets)} buckets not waited for",
            where=_labels(unreduced),
            hint="call wait() first; a factor can be given to wait(scale=...)",
        )


def refuse_nonfinite_gradients(sequence: BucketSequence) -> None:
    """Refuse gradients that are not finite, where the config asks; fail the step."""
    checked = [(b, b.checks) for b in sequence.buckets if b.checks]
    own, sums = (
        {b: names for b, checks in checked if (names := checks[i].nonfinite())}
        for i in range(2)
    )
    bad = own or sums
    if not bad:
        return
    headline = "a sum is not finite, though all gradients of this rank are"
    expected = "no NaN and no infinity on any rank, and no overflow in a sum"
    if own:
        headline = "this rank brought gradients that are not finite"
        expected = "no NaN and no infinity in any gradient"
    sequence.fail("gradients that are not finite")
    raise NonFiniteGradientError(
        headline,
        expected=expected,
        got=f"some in {', '.join(name for names in bad.values() for name in names)}",
        where=_labels(bad),
    )


def refuse_nonfinite_norm(norm: torch.Tensor) -> None:
    """Refuse to clip by a norm that would make every gradient a NaN or zero."""
    if not norm.isfinite():
        raise NonFiniteGradientError(
            "clip_grad_norm_() was called with gradients that are not finite",
            expected="a finite norm (error_if_nonfinite=True)",
            got=f"a norm of {norm.item()}",
            where="all ranks that measured it",
        )


def refuse_reductions_in_flight(sequence: BucketSequence) -> None:
    """Refuse to write into a buffer during its reduction."""
    in_flight = sequence.in_flight
    if in_flight:
        raise LifecycleError(
            "zero_grad() was called while gradients are being reduced",
            expected="wait() between the last backward and zero_grad()",
            got=f"{len(in_flight)} of {len(sequence.buckets)} buckets in flight",
            where=_labels(in_flight),
            hint="call wait() first, or reset() or unbind() on every rank to give up the step",
        )


def refuse_started_step(sequence: BucketSequence, *, count: int) -> None:
    """Refuse to change the required accumulations after the first counted gradient."""
    sequence.count_collected()
    buckets, required = sequence.buckets, sequence.require_accumulations
    # A counted backward of this step has brought a gradient.
    started = [b for b in buckets if any(v.num_accumulations for v in b.views)]
    if started:
        raise LifecycleError(
            "the required accumulations were changed in the middle of a step",
            expected=f"require_accumulations={required} until zero_grad()",
            got=f"{count}, and {len(started)} of {len(buckets)} buckets started",
            where=_labels(started),
            hint="call it after synchronizer.zero_grad() and before the next backward",
        )


def _replaced(buckets: Iterable[Bucket]) -> list[tuple[Bucket, GradientView]]:
    """List the views whose `.grad` is another tensor, with their buckets."""
    return [
        (bucket, view)
        for bucket in buckets
        for view in bucket.detached()
        if not (view.is_dropped and view.parameter.grad is None)
    ]


def _labels(buckets: Iterable[Bucket]) -> str:
    return ", ".join(dict.fromkeys(bucket.label for bucket in buckets))


def _names(members: Iterable[tuple[Bucket, GradientView]]) -> str:
    return ", ".join(view.plan.name for _, view in members)
