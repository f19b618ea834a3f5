"""What a call refuses because of the gradients of the step, by name and bucket."""

from collections.abc import Iterable

import torch

from .bucket import Bucket
from .bucket_state import BucketState
from .errors import (
    BucketNotReadyError,
    NonFiniteGradientError,
    NotReducedError,
    ReductionInFlightError,
    ReplacedGradientError,
    StepReducedError,
    StepStartedError,
)
from .gradient_view import GradientView
from .sequence import BucketSequence


def refuse_unsound_step(sequence: BucketSequence) -> None:
    """Refuse to go on with gradients that are wrong or still on their way.

    Args:
        sequence: Marked as failed where a backward did not end.

    Raises:
        StepFailedError: There was an error, or a backward has not ended.
    """
    sequence.refuse_failed_step()
    sequence.refuse_open_backward()


def refuse_missing_gradients(sequence: BucketSequence, required: int) -> None:
    """Refuse to reduce before every parameter has all its gradients.

    Args:
        sequence: Left as it is.
        required: Accumulations of every parameter.

    Raises:
        BucketNotReadyError: Some have fewer, and there was no `flush()`.
    """
    missing = [(b, view) for b in sequence.buckets for view in b.unfinished()]
    if missing:
        sequence.missing.leave("wait()", [view.plan.name for _, view in missing])
        counts = (f"{view.plan.name} {view.num_accumulations}" for _, view in missing)
        raise BucketNotReadyError(
            "wait() was called before every gradient was accumulated",
            expected=f"{required} accumulations each (require_accumulations={required})",
            got=", ".join(counts) + sequence.missing.of_others(),
            where=_labels(bucket for bucket, _ in missing),
        )


def refuse_missing_backwards(sequence: BucketSequence, required: int) -> None:
    """Refuse to end a step in which fewer backwards ran than it requires.

    Args:
        sequence: Left as it is.
        required: Backwards that count.

    Raises:
        BucketNotReadyError: There were fewer, and a parameter lacks gradients.
    """
    missing = [b for b in sequence.buckets if b.unfinished()]
    if missing and sequence.num_backwards < required:
        raise BucketNotReadyError(
            "wait() was called before every backward of the step",
            expected=f"{required} backwards (require_accumulations={required})",
            got=f"{sequence.num_backwards}",
            where=_labels(missing),
        )


def refuse_unused_parameters(sequence: BucketSequence, required: int) -> None:
    """Refuse to flush before every parameter has a gradient.

    Args:
        sequence: Left as it is.
        required: Accumulations of every parameter, were it not for `flush()`.

    Raises:
        BucketNotReadyError: Some have none.
    """
    missing = [(b, view) for b in sequence.buckets for view in b.unused()]
    if missing:
        sequence.missing.leave("flush()", [view.plan.name for _, view in missing])
        counts = (f"{view.plan.name} 0" for _, view in missing)
        raise BucketNotReadyError(
            "flush() was called before every parameter had a gradient",
            expected=f"1 accumulation or more each (require_accumulations={required})",
            got=", ".join(counts) + sequence.missing.of_others(),
            where=_labels(bucket for bucket, _ in missing),
        )


@torch.no_grad()  # once, and not for each gradient
def refuse_replaced_gradients(sequence: BucketSequence) -> None:
    """Refuse a `.grad` that is not the one to be summed; fails the step.

    Args:
        sequence: Buckets that were waited for are not looked at.

    Raises:
        ReplacedGradientError: Some `.grad` is another.
    """
    replaced = [
        (bucket, view)
        for bucket in sequence.buckets
        if bucket.state is not BucketState.REDUCED
        for view in bucket.views
        if not (view.is_attached() or view.is_kept_none())
    ]
    if replaced:
        sequence.fail()
        raise ReplacedGradientError(
            "a gradient was replaced after the last backward and before wait()",
            expected="every .grad to be the view that is being summed",
            got=f"another .grad at {_names(replaced)}",
            where=_labels(bucket for bucket, _ in replaced),
        )


@torch.no_grad()  # once, and not for each gradient
def refuse_replaced_results(sequence: BucketSequence, call: str) -> None:
    """Refuse to scale or to measure what is not in `.grad` any more.

    Args:
        sequence: Reduced; left as it is.
        call: What the user called.

    Raises:
        ReplacedGradientError: Some `.grad` is another.
    """
    replaced = [
        (bucket, view)
        for bucket in sequence.buckets
        for view in bucket.views
        if not (view.is_attached() or view.is_kept_none())
    ]
    if replaced:
        raise ReplacedGradientError(
            f"a gradient was replaced before {call}",
            expected="every .grad to be the view that was summed",
            got=f"another .grad at {_names(replaced)}",
            where=_labels(bucket for bucket, _ in replaced),
        )


def refuse_reduced_step(sequence: BucketSequence) -> None:
    """Refuse to scale a second time by way of `wait()`.

    Args:
        sequence: Left as it is.

    Raises:
        StepReducedError: The step was waited for.
    """
    if sequence.is_reduced:
        raise StepReducedError(
            "wait(scale=...) was called on a step that was waited for before",
            expected="one wait(scale=...) in a step, the first wait()",
            got="gradients that were given to the caller already",
        )


def refuse_unreduced_step(sequence: BucketSequence, call: str) -> None:
    """Refuse to touch gradients that were not waited for.

    Args:
        sequence: Left as it is.
        call: What the user called.

    Raises:
        NotReducedError: The step was not waited for.
    """
    if not sequence.is_reduced:
        unreduced = [b for b in sequence.buckets if b.state is not BucketState.REDUCED]
        raise NotReducedError(
            f"{call} was called before wait()",
            expected=f"{call} between wait() and zero_grad()",
            got=f"{len(unreduced)} of {len(sequence.buckets)} buckets not waited for",
            where=_labels(unreduced),
        )


def refuse_bad_gradients(sequence: BucketSequence) -> None:
    """Refuse gradients that are not finite, if that is checked; fails the step.

    Args:
        sequence: Reduced, for the first time in this step.

    Raises:
        NonFiniteGradientError: Some gradient of this rank, or some sum, is not finite.
    """
    checked = [(b, b.finite) for b in sequence.buckets if b.finite]
    own = [(bucket, finite.bad_own()) for bucket, finite in checked]
    sums = [(bucket, finite.bad_sums()) for bucket, finite in checked]
    if any(names for _, names in own):
        sequence.fail("gradients that are not finite")
        raise NonFiniteGradientError(
            "this rank brought gradients that are not finite",
            expected="no NaN and no infinity in any gradient",
            got=f"some in {', '.join(name for _, names in own for name in names)}",
            where=_labels(bucket for bucket, names in own if names),
        )
    if any(names for _, names in sums):
        sequence.fail("gradients that are not finite")
        raise NonFiniteGradientError(
            "a sum is not finite, though all gradients of this rank are",
            expected="no NaN and no infinity on any rank, and no overflow in a sum",
            got=f"some in {', '.join(name for _, names in sums for name in names)}",
            where=_labels(bucket for bucket, names in sums if names),
        )


def refuse_reductions_in_flight(sequence: BucketSequence) -> None:
    """Refuse to write into a buffer that is being reduced.

    Args:
        sequence: Left as it is.

    Raises:
        ReductionInFlightError: A reduction was launched and not waited for.
    """
    in_flight = [b for b in sequence.buckets if b.state is BucketState.LAUNCHED]
    if in_flight:
        raise ReductionInFlightError(
            "zero_grad() was called while gradients are being reduced",
            expected="wait() between the last backward and zero_grad()",
            got=f"{len(in_flight)} of {len(sequence.buckets)} buckets in flight",
            where=_labels(in_flight),
        )


def refuse_offload_in_step(sequence: BucketSequence) -> None:
    """Refuse to give memory back while gradients come or are reduced.

    Args:
        sequence: Left as it is.

    Raises:
        StepStartedError: There is a gradient, and the step was not waited for.
    """
    used = [b for b in sequence.buckets if len(b.unused()) < len(b.views)]
    launched = [b for b in sequence.buckets if b.state is BucketState.LAUNCHED]
    started = [b for b in sequence.buckets if b in used or b in launched]
    if started and not sequence.is_reduced:
        raise StepStartedError(
            "offload() was called in the middle of a step",
            expected="offload() after wait(), or after zero_grad()",
            got=f"{len(started)} of {len(sequence.buckets)} buckets started",
            where=_labels(started),
        )


def refuse_started_step(buckets: list[Bucket], *, required: int, count: int) -> None:
    """Refuse to change what a step requires after its first gradient.

    Args:
        buckets: All of them.
        required: Accumulations so far.
        count: Accumulations asked for.

    Raises:
        StepStartedError: A gradient was accumulated.
    """
    started = [bucket for bucket in buckets if bucket.has_started]
    if started:
        raise StepStartedError(
            "the required accumulations were changed in the middle of a step",
            expected=f"require_accumulations={required} until zero_grad()",
            got=f"{count}, and {len(started)} of {len(buckets)} buckets started",
            where=_labels(started),
        )


def _labels(buckets: Iterable[Bucket]) -> str:
    return ", ".join(dict.fromkeys(bucket.label for bucket in buckets))


def _names(members: Iterable[tuple[Bucket, GradientView]]) -> str:
    return ", ".join(view.plan.name for _, view in members)
