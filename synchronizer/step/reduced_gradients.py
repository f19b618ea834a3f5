"""Calls on reduced gradients: owned parts, norms, times, and memory."""

import torch
import torch.distributed as dist

from syncverify.synchronizer.bucket.timing import BucketTiming
from syncverify.synchronizer.contract import arguments
from syncverify.synchronizer.contract.errors import (
    NotBoundError,
    NotOffloadedError,
    OffloadedError,
)
from syncverify.synchronizer.plan.ownership import OwnedGradient

from . import refusals
from .gradient_norm import clip_factor
from .gradient_norm import grad_norm as measured_norm
from .sequence import BucketSequence


class ReducedGradients:
    """The calls that work on buckets between `wait()` and the next backward."""

    def __init__(self) -> None:
        # None is the unbound state.
        self._sequence: BucketSequence | None = None

    def owned_grads(self) -> tuple[OwnedGradient, ...]:
        """List the valid gradients of this rank, between `wait()` and `zero_grad()`.

        With `mode="reduce_scatter"` these are this rank's parts of the sums, and all
        gradients that are not summed. Otherwise these are all gradients.

        Returns:
            Gradients in the same order in every step: bucket by bucket, last parameter
            first.

        Raises:
            NotBoundError: The synchronizer is not bound.
            StepFailedError: An earlier error made a gradient of this step wrong.
            NotReducedError: The step was not waited for.
        """
        sequence = self._sequence_with_memory("owned_grads()")
        refusals.refuse_unsound_step(sequence)
        refusals.refuse_unreduced_step(sequence, "owned_grads()")
        return tuple(g for b in sequence.buckets for g in b.owned_gradients())

    def grad_norm(
        self, norm_type: float = 2.0, *, stages: dist.ProcessGroup | None = None
    ) -> torch.Tensor:
        """Measure all gradients, between `wait()` and `zero_grad()`; scales included.

        Each gradient counts once: a replicated one, a sharded one with all its shards,
        scattered sums with all their parts. So ranks that share parameters call it
        together. Plain parameters without a process group count on their own rank only.

        Args:
            norm_type: p of the p-norm, above 0; infinite for the largest absolute
                value.
            stages: Ranks with other parameters, one of each pipeline stage, this one
                included. They call it together, and their gradients count as well.

        Returns:
            float64, without dims, on the gradients' device. The host does not wait for
            it.

        Raises:
            InvalidArgumentError: There is no such norm.
            NotBoundError: The synchronizer is not bound.
            StepFailedError: An earlier error made a gradient of this step wrong.
            NotReducedError: The step was not waited for.
            ReplacedGradientError: A `.grad` is not the tensor that was summed.
        """
        return self._grad_norm("grad_norm()", norm_type, stages)

    def clip_grad_norm_(
        self,
        max_norm: float,
        norm_type: float = 2.0,
        *,
        error_if_nonfinite: bool = False,
        stages: dist.ProcessGroup | None = None,
    ) -> torch.Tensor:
        """Scale all gradients so that their norm is at most `max_norm`.

        Equal to `torch.nn.utils.clip_grad_norm_` on the full gradients of all
        parameters.

        Args:
            max_norm: Upper bound, above 0.
            norm_type: p of the p-norm, as for `grad_norm()`.
            error_if_nonfinite: Whether to raise where the norm is not finite. The host
                then waits for the device.
            stages: Ranks with other parameters, as for `grad_norm()`.

        Returns:
            The norm before, as from `grad_norm()`.

        Raises:
            InvalidArgumentError: There is no such norm, or no gradient that has it.
            NotBoundError: The synchronizer is not bound.
            StepFailedError: An earlier error made a gradient of this step wrong.
            NotReducedError: The step was not waited for.
            ReplacedGradientError: A `.grad` is not the tensor that was summed.
            NonFiniteGradientError: The norm is not finite; nothing has changed.
        """
        bound = arguments.checked_positive("max_norm", max_norm)
        call = "clip_grad_norm_()"
        norm = self._grad_norm(call, norm_type, stages)
        if error_if_nonfinite:
            refusals.refuse_nonfinite_norm(norm)
        self._sequence_with_memory(call).scale(clip_factor(norm, bound))
        return norm

    def timings(self) -> tuple[BucketTiming, ...]:
        """Return the times of all buckets in the newest step that was waited for.

        Returns:
            Times in launch order; empty before the first `wait()`, or if the config
            does not ask for timings.

        Raises:
            NotBoundError: The synchronizer is not bound.
        """
        return self._bound_sequence("timings()").timings()

    def offload(self) -> None:
        """Move all buffers to host memory until `onload()`, between steps.

        Every `.grad` that is a view becomes None.

        Raises:
            NotBoundError: The synchronizer is not bound.
            OffloadedError: The buffers are offloaded already.
            StepFailedError: An earlier error made a gradient of this step wrong.
            StepStartedError: There are gradients, and the step was not waited for.
        """
        sequence = self._sequence_with_memory("offload()")
        refusals.refuse_unsound_step(sequence)
        refusals.refuse_offload_in_step(sequence)
        sequence.offload()

    def onload(self) -> None:
        """Undo `offload()`: the same views, with the same values.

        Raises:
            NotBoundError: The synchronizer is not bound.
            NotOffloadedError: The buffers are not offloaded.
        """
        sequence = self._bound_sequence("onload()")
        if not sequence.is_offloaded:
            raise NotOffloadedError(
                "onload() was called on buffers that are not offloaded",
                expected="offload() before onload()",
                got=f"{len(sequence.buckets)} buckets with their memory",
            )
        sequence.onload()

    def _grad_norm(
        self, call: str, norm_type: float, stages: dist.ProcessGroup | None
    ) -> torch.Tensor:
        p = arguments.checked_positive("norm_type", norm_type)
        sequence = self._sequence_with_memory(call)
        refusals.refuse_unsound_step(sequence)
        refusals.refuse_unreduced_step(sequence, call)
        refusals.refuse_replaced_results(sequence, call)
        return measured_norm(sequence.buckets, sequence.groups, p, stages)

    def _sequence_with_memory(self, call: str) -> BucketSequence:
        """Return the buckets for a call that needs their memory."""
        sequence = self._bound_sequence(call)
        if sequence.is_offloaded:
            raise OffloadedError(
                f"{call} was called while the buffers were offloaded",
                expected="onload() after offload()",
                got=f"{len(sequence.buckets)} buckets without memory",
            )
        return sequence

    def _bound_sequence(self, call: str) -> BucketSequence:
        if self._sequence is None:
            raise NotBoundError(
                f"{call} was called on a synchronizer that is not bound",
                expected="bind() before, unbind() after",
                got=repr(self),
            )
        return self._sequence
