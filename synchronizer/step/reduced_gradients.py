"""Calls on what buckets hold: owned parts, norms, and the state of comm hooks."""

from collections.abc import Mapping

import torch
import torch.distributed as dist

from syncverify.synchronizer.bucket.hook_state import HookState
from syncverify.synchronizer.contract import arguments
from syncverify.synchronizer.contract.errors import LifecycleError
from syncverify.synchronizer.plan.ownership import OwnedGradient
from syncverify.synchronizer.step import refusals
from syncverify.synchronizer.step.gradient_norm import clip_factor
from syncverify.synchronizer.step.gradient_norm import grad_norm as measured_norm
from syncverify.synchronizer.step.sequence import BucketSequence


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
            StepFailedError: An earlier error made a gradient of this step wrong.
            LifecycleError: It is not bound, or was not waited for.
        """
        sequence = self._bound_sequence("owned_grads()")
        refusals.refuse_unsound_step(sequence)
        refusals.refuse_unreduced_step(sequence, "owned_grads()")
        return tuple(g for b in sequence.buckets for g in b.owned_gradients())

    def grad_norm(
        self, norm_type: float = 2.0, *, stages: dist.ProcessGroup | None = None
    ) -> torch.Tensor:
        """Measure all gradients, between `wait()` and `zero_grad()`; scales included.

        Each gradient counts once: a replicated one, a sharded one with all its shards,
        scattered sums with all their parts. So ranks that share parameters call it
        together. Ordinary parameters without a process group count on their own rank only.

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
            StepFailedError: An earlier error made a gradient of this step wrong.
            LifecycleError: It is not bound, or was not waited for.
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
            StepFailedError: An earlier error made a gradient of this step wrong.
            LifecycleError: It is not bound, or was not waited for.
            ReplacedGradientError: A `.grad` is not the tensor that was summed.
            NonFiniteGradientError: The norm is not finite; nothing has changed.
        """
        bound = arguments.checked_positive("max_norm", max_norm)
        call = "clip_grad_norm_()"
        norm = self._grad_norm(call, norm_type, stages)
        if error_if_nonfinite:
            refusals.refuse_nonfinite_norm(norm)
        self._bound_sequence(call).scale(clip_factor(norm, bound))
        return norm

    def state_dict(self) -> HookState:
        """Return what the comm hook keeps for the gradients of this rank, for a checkpoint.

        Returns:
            Copies, by the name of a parameter and the key of the hook, in the shape of the
            local gradient; empty without a hook.

        Raises:
            LifecycleError: The synchronizer is not bound.
        """
        return self._bound_sequence("state_dict()").hook_state()

    def load_state_dict(self, state: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        """Give the comm hook what `state_dict()` has returned on this rank.

        Args:
            state: What to keep; parameters without an entry begin with zeros.

        Raises:
            LifecycleError: The synchronizer is not bound.
            InvalidArgumentError: The state has a name that no parameter has.
        """
        sequence = self._bound_sequence("load_state_dict()")
        known = {member.name for plan in sequence.plans for member in plan.members}
        arguments.refuse_unknown_names("state", state, known)
        sequence.load_hook_state(state)

    def _grad_norm(
        self, call: str, norm_type: float, stages: dist.ProcessGroup | None
    ) -> torch.Tensor:
        p = arguments.checked_positive("norm_type", norm_type)
        sequence = self._reduced_sequence(call)
        return measured_norm(sequence.buckets, sequence.groups, p, stages)

    def _reduced_sequence(self, call: str) -> BucketSequence:
        """Return the buckets for a call on the sums, which are in `.grad`."""
        sequence = self._bound_sequence(call)
        refusals.refuse_unsound_step(sequence)
        refusals.refuse_unreduced_step(sequence, call)
        refusals.refuse_replaced_results(sequence, call)
        return sequence

    def _bound_sequence(self, call: str) -> BucketSequence:
        if self._sequence is None:
            raise LifecycleError(
                f"{call} was called on a synchronizer that is not bound",
                expected="bind() before, unbind() after",
                got=repr(self),
                hint="call bind() first",
            )
        return self._sequence
