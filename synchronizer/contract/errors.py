"""Errors that a user of the synchronizer can meet, one class for each mistake."""

from typing import ClassVar

import torch.distributed as dist


class SynchronizerError(Exception):
    """Base of every error that this package raises on purpose.

    Args:
        headline: The mistake, understandable without the other lines.
        expected: The state that the contract requires.
        got: The state that was found, with names and counts.
        where: Bucket or mesh axis; the rank is added here.
        hint: The remedy; that of the class where none is given.
    """

    hint: ClassVar[str] = ""

    def __init__(
        self,
        headline: str,
        *,
        expected: str = "",
        got: str = "",
        where: str = "",
        hint: str = "",
    ) -> None:
        if expected or got or where:
            place = ", ".join(filter(None, (_rank(), where)))
            headline = (
                f"{headline}\n"
                f"  expected: {expected}\n"
                f"  got:      {got}\n"
                f"  where:    {place}\n"
                f"  hint: {hint or self.hint}"
            )
        # `pickle` calls the constructor with the complete message alone.
        super().__init__(headline)


class InvalidArgumentError(SynchronizerError, ValueError):
    """An argument was out of range or of the wrong type."""

    hint = "see the docstring of GradientSynchronizer"


class UnsupportedPlacementError(SynchronizerError):
    """A DTensor parameter has a mesh axis that the synchronizer cannot sum over.

    It is neither replicated nor sharded over that axis, or FSDP2 sums over it as well.
    """

    hint = "redistribute the parameter before bind(), or change the axis_reductions"


class LifecycleError(SynchronizerError):
    """A call came in a state that has no place for it; only a backward changes anything."""


class PlanMismatchError(SynchronizerError):
    """Ranks that share buckets have different plans, or do not arrive in time."""

    hint = (
        "make the same model and the same synchronizer on every rank, and bind"
        " synchronizers in the same order"
    )


class LateAccumulationError(SynchronizerError):
    """A gradient has no place in its step, which is reduced or has all gradients."""

    hint = (
        "call wait() and synchronizer.zero_grad() between steps: optimizer.zero_grad() starts"
        " no step; every backward() counts once, also several of them over one graph; if one"
        " backward brought more gradients than any before, repeat the step, after reset() or"
        " unbind() on every rank: zero_grad() refuses while reductions are in flight"
    )


class GradientMismatchError(SynchronizerError):
    """A gradient does not fit its view, would be summed twice, or may have come past the hooks."""

    hint = (
        "assign a gradient of the expected kind, or None; call unbind() before the dtype,"
        " device or shape of a parameter changes, and bind() after it"
    )


class BucketNotReadyError(SynchronizerError):
    """`wait()` or `flush()` was called before parameters had the gradients that it needs."""

    hint = (
        "call wait() after the last micro-batch's backward, or flush() to end the step"
        " early; a parameter that the loss does not depend on needs requires_grad=False,"
        " or a synchronizer with another policy for unused parameters; backwards on several"
        " threads have to come one after the other"
    )


class UnfrozenParameterError(SynchronizerError):
    """A parameter without a place in a bucket is trained now.

    It was frozen at `bind()`, or it has replaced another parameter of the module since.
    """

    hint = (
        "before the first step in which the parameter is trained, call unbind() and bind()"
        " on every rank, of a new synchronizer where another parameter took its place"
    )


class ReplacedGradientError(SynchronizerError):
    """A `.grad` was exchanged between the last backward and a call that needs the gradient."""

    hint = "assign to .grad after wait() only"


class ReductionFailedError(SynchronizerError):
    """The process group failed to complete a reduction."""

    hint = "call unbind() on every rank, and look for a rank that failed earlier"


class InFlightWriteError(SynchronizerError):
    """A gradient was written between its launch and `wait()`."""

    hint = (
        "write to .grad after wait(), before the last backward, or in a hook of the"
        " parameter (register_post_accumulate_grad_hook); then synchronizer.zero_grad()"
        " and repeat the step on every rank"
    )


class CommHookError(ReductionFailedError):
    """A comm hook raised, or its result is not a future of the sums."""

    hint = (
        "return a torch.futures.Future of the reduced buffer, or of another tensor like"
        " it; then call synchronizer.zero_grad() on every rank, or unbind() if it refuses"
    )


class NonFiniteGradientError(SynchronizerError):
    """A gradient, or a sum of gradients, holds a NaN or an infinity."""

    hint = (
        "the error of the rank with the bad gradients names them; call"
        " synchronizer.zero_grad() on every rank, then repeat or skip the step"
    )


class StepFailedError(SynchronizerError):
    """A step went on after an earlier error had made its gradients unusable."""

    hint = "call synchronizer.zero_grad() on every rank, or reset() or unbind() if it refuses"


def _rank() -> str:
    """Name this rank; a process without process groups is rank 0 of 1."""
    if not (dist.is_available() and dist.is_initialized()):
        return "rank 0 of 1"
    return f"rank {dist.get_rank()} of {dist.get_world_size()}"
