"""The gradient synchronizer: bind → (backward…, wait, zero_grad)* → unbind."""

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any, ClassVar, Self

import torch
import torch.distributed as dist
from torch import nn
from typing_extensions import override

from syncverify.synchronizer.contract import arguments, parameter_groups
from syncverify.synchronizer.contract.config import DEFAULT_CONFIG, SynchronizerConfig
from syncverify.synchronizer.contract.errors import LifecycleError, ReductionFailedError
from syncverify.synchronizer.plan.explanation import Explanation
from syncverify.synchronizer.plan.grouping import (
    cut_buckets,
    frozen_parameters,
    list_candidates,
    plan_buckets,
)
from syncverify.synchronizer.plan.ownership import OwnedGradient
from syncverify.synchronizer.plan.plan_agreement import (
    Fingerprint,
    mesh_ranks,
    refuse_different_plans,
)
from syncverify.synchronizer.ranks.notes import open_notes
from syncverify.synchronizer.step import refusals
from syncverify.synchronizer.step.given_up import match_peer_launches
from syncverify.synchronizer.step.gradient_norm import clip_factor
from syncverify.synchronizer.step.gradient_norm import grad_norm as measured_norm
from syncverify.synchronizer.step.rebuild import Rebuild
from syncverify.synchronizer.step.replicas import broadcast
from syncverify.synchronizer.step.sequence import BucketSequence
from syncverify.synchronizer.transport.comm_hook_transport import HookState

MIB_BYTES = 2**20


class GradientSynchronizer:
    """Sums gradients over the ranks that replicate a parameter, during backward.

    A DTensor parameter's gradient is summed over every mesh axis on which the parameter
    is replicated, and over no axis on which it is sharded. The gradient may arrive
    local or still Partial. The config may choose other reductions. Parameters that are
    no DTensor ("ordinary" ones) stay local unless the config has a process group for them.
    Sums start from inside the last backward of a step, bucket by bucket, in an order that is
    equal on all ranks. All ranks must pass the same parameters in the same order.

    From `bind()` to `unbind()` each `.grad` is a view into a flat buffer. `unbind()`
    sets it to None; so does the end of a synchronizer that is dropped while bound. The
    first `zero_grad()` after a reduced step may move a `.grad` to another buffer. As a
    context manager, the object binds and unbinds; an exception in the block waits for no
    reduction in flight, whose memory is kept until the process ends.

    While a second synchronizer that sums is bound on a rank, both start their sums in `wait()`,
    since backwards may take turns in another way on each rank. One synchronizer for all
    parameters overlaps.

    Args:
        param_groups: A list of lists: `[[p0, p1], [p2]]`. Only parameters of one list share
            buckets. One that is listed twice counts once; a frozen one is ignored, and has
            to stay frozen until `unbind()`.
        bucket_size_mb: Upper bound on a bucket, in MiB (2**20 bytes) of local elements
            in the gradient dtype, which is the parameter's `grad_dtype` where that is
            set. A larger parameter has a bucket for itself.
        require_accumulations: Number of backwards in a step that bring each parameter a
            gradient. A backward counts once, also if it brings several gradients. May be
            left out: `set_required_accumulations()` says it before the first backward.
        parameter_names: Names of the parameters in messages.
        config: All further options.

    Raises:
        InvalidArgumentError: A bound or count is not positive, or of the wrong type.
    """

    overlaps_backward: ClassVar[bool] = True  # for harnesses: sums start in backward
    refused: ClassVar[frozenset[str]] = frozenset({"parameters=ordinary"})  # by bind()

    def __init__(
        self,
        param_groups: list[list[nn.Parameter]],
        bucket_size_mb: float,
        require_accumulations: int | None = None,
        *,
        parameter_names: Mapping[nn.Parameter, str] | None = None,
        config: SynchronizerConfig = DEFAULT_CONFIG,
    ) -> None:
        count = require_accumulations
        self._require_accumulations = (
            None if count is None else arguments.checked_count(count)
        )
        self._sequence: BucketSequence | None = None  # None is the unbound state
        # The caller's own lists: a parameter that is appended before `bind()` counts.
        self._param_groups = parameter_groups.checked(param_groups)
        cap_mib = arguments.checked_positive(
            "bucket_size_mb", bucket_size_mb, " of MiB"
        )
        self._bucket_cap_bytes = cap_mib * MIB_BYTES
        self._parameter_names = dict(parameter_names or {})
        self._config = config
        self._rebuild: Rebuild | None = None  # until it is done
        self._frozen: dict[str, nn.Parameter] = {}
        self._module: weakref.ref[nn.Module] | None = None  # of `from_module` alone

    @classmethod
    def from_module(
        cls,
        module: nn.Module,
        bucket_size_mb: float,
        require_accumulations: int | None = None,
        *,
        param_groups: list[list[nn.Parameter]] | None = None,
        config: SynchronizerConfig = DEFAULT_CONFIG,
    ) -> Self:
        """Make a synchronizer that knows parameters by their names in a module.

        Args:
            module: Module with the parameters to synchronize.
            bucket_size_mb: Upper bound on a bucket in MiB, as for the class.
            require_accumulations: Number of backwards in a step, as for the class.
            param_groups: Groups of parameters. Default: one group of all parameters.
            config: All further options.

        Returns:
            A synchronizer that is not bound.
        """
        names = {parameter: name for name, parameter in module.named_parameters()}
        groups = [list(names)] if param_groups is None else param_groups
        made = cls(
            groups,
            bucket_size_mb,
            require_accumulations,
            parameter_names=names,
            config=config,
        )
        made._module = weakref.ref(module)
        return made

    @override
    def __repr__(self) -> str:
        state = "unbound" if self._sequence is None else "bound"
        count = f"require_accumulations={self._require_accumulations}"
        return f"GradientSynchronizer({state}, {count})"

    def __enter__(self) -> Self:
        self.bind()
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        # A peer of a sum may have failed as well: a wait would last until the timeout of the
        # process group, and then hide the error.
        if error is not None and self._sequence is not None:
            self._sequence.leave_if_in_flight()
        self.unbind()

    def bind(self) -> None:
        """Allocate the buckets, attach a view to every `.grad`, and install the hooks.

        An existing `.grad` is copied into its view and so takes part in the next sum.
        Ranks that share buckets bind together, compare their plans, and create process
        groups where a sum spans several mesh axes.

        Raises:
            LifecycleError: The synchronizer is bound.
            InvalidArgumentError: The config names an axis that no mesh has, or a process
                group that this rank cannot use; or no gradient would be reduced.
            UnsupportedPlacementError: A parameter is neither replicated nor sharded.
            PlanMismatchError: Ranks that share buckets differ in them or in the values of
                parameters, or do not bind in time.
            GradientMismatchError: An existing `.grad` does not fit its parameter.
        """
        if self._sequence is not None:
            raise LifecycleError(
                "bind() was called on a bound synchronizer",
                expected="unbind() between two calls of bind()",
                got=repr(self),
                hint="call unbind() first",
            )
        groups, config, cap = self._param_groups, self._config, self._bucket_cap_bytes
        candidates = list_candidates(groups, self._parameter_names, config)
        parameter_groups.refuse_local_only(groups, config)
        plans = cut_buckets(candidates, bucket_cap_bytes=cap, config=config)
        notes = open_notes(Fingerprint.of(plans).scopes, mesh_ranks(plans))
        refuse_different_plans(plans, notes, config)
        count = self._require_accumulations
        self._sequence = BucketSequence(
            plans, require_accumulations=count, config=config, notes=notes
        )
        self._frozen = frozen_parameters(groups, self._parameter_names)
        if config.rebuild:
            self._rebuild = Rebuild(
                candidates, notes, bucket_cap_bytes=cap, config=config
            )
        if config.unequal_replicas == "broadcast":
            self.broadcast_replicas()

    def explain(self) -> Explanation:
        """Describe the reductions of every step: buckets, ranks and moments.

        Returns:
            All buckets of this rank, bound or not; prints as a table.
        """
        sequence = self._sequence
        if sequence is not None:
            return Explanation.of(sequence.plans, is_rebuilt=sequence.is_rebuilt)
        plans = plan_buckets(
            self._param_groups,
            bucket_cap_bytes=self._bucket_cap_bytes,
            parameter_names=self._parameter_names,
            config=self._config,
        )
        return Explanation.of(plans)

    def logging_data(self) -> dict[str, Any]:
        """Describe the buckets and their newest times, for a log or as JSON.

        Returns:
            The fields of `explain()`, and for each bucket `times`: None before it was ready
            for the first time, then `ready_ns`, `launched_ns` and `done_ns`, by the host's
            `time.perf_counter_ns`.

        Raises:
            LifecycleError: The synchronizer is not bound.
        """
        buckets = self._bound_sequence("logging_data()").buckets
        data = asdict(self.explain())
        for described, bucket in zip(data["buckets"], buckets, strict=True):
            described["times"] = bucket.times and asdict(bucket.times)
        return data

    def broadcast_replicas(self) -> None:
        """Give parameters and buffers of the lowest rank to all ranks that replicate them.

        As DDP does when it wraps a module; all ranks call it after `bind()`, which refuses
        unequal replicas by default (`unequal_replicas` of the config).
        Frozen parameters are sent too. Ordinary ones, and buffers of the module of
        `from_module`, need the process group of the config, and stay as they are without.

        Raises:
            LifecycleError: The synchronizer is not bound.
        """
        sequence = self._bound_sequence("broadcast_replicas()")
        module = self._known_module()
        buffers = () if module is None else module.buffers()
        listed = (parameter for group in self._param_groups for parameter in group)
        once = dict.fromkeys((*listed, *buffers))
        broadcast(once, sequence.groups, self._config.process_group)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate without counting, until the block ends.

        A backward that starts inside adds to the gradients, launches nothing, and is
        none of the `require_accumulations`, which come before or after. The forward may
        run inside or outside. A parameter needs the counted backwards as well. May be
        nested.

        Raises:
            LifecycleError: The synchronizer is not bound.
        """
        with self._bound_sequence("no_sync()").no_sync():
            yield

    def mark_ready(self, *parameters: nn.Parameter) -> None:
        """Count gradients that the caller has added to `.grad`, one of each parameter.

        For schedules that compute the gradients of weights apart from backward, such as
        zero-bubble pipelines. A mark counts as a backward that brings these parameters a
        gradient, and starts the sums of buckets that are complete. It does not count
        inside `no_sync()`. `.grad` may be changed in place or, where it was None or by an
        operator that is not in place, replaced. The current stream has queued the change.

        Raises:
            LifecycleError: The synchronizer is not bound, or has no count.
            InvalidArgumentError: A parameter has no place in a bucket: it is not listed, or
                was frozen at `bind()`.
            StepFailedError: An earlier error made a gradient of this step wrong.
            LateAccumulationError: A parameter has all gradients that a step requires.
            LateAccumulationError: The bucket of a parameter is being reduced.
            GradientMismatchError: A `.grad` does not fit its parameter.
        """
        sequence = self._bound_sequence("mark_ready()")
        sequence.refuse_unsound_step()
        sequence.known_count("mark_ready()")
        sequence.mark_ready(parameters)

    def set_required_accumulations(self, require_accumulations: int) -> None:
        """Set or change the number of accumulations of each parameter in a step.

        The number holds until the next call, also after `unbind()`, `bind()` and `reset()`.

        Args:
            require_accumulations: New number, from the next step on; before `bind()`, or
                after it and before the first counted backward of the step.

        Raises:
            InvalidArgumentError: The count is not a positive integer.
            LifecycleError: A counted backward has brought a gradient since the last
                `zero_grad()`.
        """
        count = arguments.checked_count(require_accumulations)
        if self._sequence is not None:
            refusals.refuse_started_step(self._sequence, count=count)
            self._sequence.require(count)
        self._require_accumulations = count

    def flush(self) -> None:
        """End this rank's step early, with fewer accumulations than required.

        Reduces the gradients so far, for instance in the last window of an epoch, or on
        a rank with less data. The other ranks flush as well or complete their step.
        Then call `wait()`.

        Raises:
            LifecycleError: It is not bound, or has no count.
            StepFailedError: An earlier error made a gradient of this step wrong.
            UnfrozenParameterError: A parameter that was frozen at `bind()` is trained;
                nothing has changed.
            BucketNotReadyError: A parameter has no gradient at all; nothing has
                changed.
            ReplacedGradientError: A `.grad` is not the tensor that is to be summed.
            CommHookError: A comm hook failed.
        """
        sequence = self._ending_sequence("flush()")
        if self._config.unused == "error":
            refusals.refuse_missing_gradients(sequence, "flush()")
        refusals.refuse_replaced_gradients(sequence)
        sequence.flush()

    def wait(self, *, scale: float | torch.Tensor | None = None) -> None:
        """Make every gradient safe to read on the current stream.

        Args:
            scale: Factor of every gradient, also of those that are not reduced: a
                number or a real tensor without dims. Only the product is rounded. For
                an average both factors are one multiplication.

        Raises:
            InvalidArgumentError: The scale cannot multiply gradients.
            StepFailedError: An earlier error made a gradient of this step wrong.
            UnfrozenParameterError: A parameter that was frozen at `bind()` is trained;
                nothing has changed.
            LifecycleError: It is not bound, has no count, or was waited for and has a scale now.
            BucketNotReadyError: A gradient is missing; nothing has changed.
            GradientMismatchError: A parameter was exchanged for a tensor without hooks.
            ReplacedGradientError: A `.grad` is not the tensor that is being summed.
            ReductionFailedError: A process group reported a failure, or a comm hook
                failed, a `CommHookError`.
            NonFiniteGradientError: The config has a check, and it failed.
            InFlightWriteError: A `.grad` was written since its launch.
        """
        factor = None if scale is None else arguments.checked_factor("scale", scale)
        sequence = self._ending_sequence("wait()")
        if factor is not None:
            refusals.refuse_reduced_step(sequence)
        if self._config.unused == "error":
            refusals.refuse_missing_gradients(sequence, "wait()")
        else:
            refusals.refuse_missing_backwards(sequence)
        refusals.refuse_replaced_gradients(sequence)
        if self._rebuild is not None:
            self._rebuild.note_complete(sequence)
        was_reduced = sequence.is_reduced
        sequence.finish(drop_unused=self._config.unused == "keep_none", scale=factor)
        if self._config.check_finite and not was_reduced:
            refusals.refuse_nonfinite_gradients(sequence)

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
        sequence.refuse_unsound_step()
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
            stages: Ranks with different parameters, one of each pipeline stage, this one
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
        p = arguments.checked_positive("norm_type", norm_type)
        sequence = self._reduced_sequence("grad_norm()")
        return measured_norm(sequence.buckets, sequence.groups, p, stages)

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
            stages: Ranks with different parameters, as for `grad_norm()`.

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
        p = arguments.checked_positive("norm_type", norm_type)
        sequence = self._reduced_sequence("clip_grad_norm_()")
        norm = measured_norm(sequence.buckets, sequence.groups, p, stages)
        if error_if_nonfinite:
            refusals.refuse_nonfinite_norm(norm)
        sequence.scale(clip_factor(norm, bound))
        return norm

    def scale_grads(self, factor: float | torch.Tensor) -> None:
        """Multiply every gradient, between `wait()` and `zero_grad()`.

        With `mode="reduce_scatter"`, multiply every gradient that this rank owns.

        Args:
            factor: A number, or a real tensor without dims.

        Raises:
            InvalidArgumentError: The factor cannot multiply gradients.
            StepFailedError: An earlier error made a gradient of this step wrong.
            LifecycleError: It is not bound, or was not waited for.
            ReplacedGradientError: A `.grad` is not the tensor that was summed.
        """
        checked = arguments.checked_factor("factor", factor)
        self._reduced_sequence("scale_grads()").scale(checked)

    def zero_grad(self, *, set_to_none: bool = False) -> None:
        """Zero every gradient and start the next step.

        A replaced `.grad` becomes the view again. Accumulations of a step that was not
        waited for are dropped. The first call after a reduced step may cut the buckets
        anew, and then every `.grad` is another tensor: see Note [Effects of a rebuild].

        Args:
            set_to_none: Whether every `.grad` becomes None until its first gradient is
                copied into the bucket. Saves the zeros and the sum, and for DTensors
                the dispatch of the sum. Faster with large parameters and with DTensors,
                slower with many small ordinary ones.

        Raises:
            LifecycleError: It is not bound, or a reduction is in flight.
            GradientMismatchError: A parameter was cast, moved or resized after `bind()`.
            PlanMismatchError: A rank that shares buckets did not complete the first
                step in time; nothing has changed.
        """
        sequence = self._bound_sequence("zero_grad()")
        refusals.refuse_reductions_in_flight(sequence)
        plans = None
        if self._rebuild is not None and self._rebuild.is_due:
            plans = self._rebuild.plan(sequence)
            self._rebuild = None  # once is enough
        sequence.restart(set_to_none=set_to_none)
        if plans is not None:
            try:
                sequence.rebuild(plans)
            except BaseException:
                self.unbind()
                raise
            sequence.restart(set_to_none=set_to_none)

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

    def reset(self) -> None:
        """Return to a clean bound state from any state.

        The state is that after `bind()`, with every gradient zero. All ranks reset
        together, as they bind, also where an error found them at different places: see
        Note [Giving up a step]. Like `unbind()`, it waits for reductions in flight, and
        ignores their failures.

        Raises:
            UnsupportedPlacementError: A parameter is neither replicated nor sharded.
            PlanMismatchError: A rank that shares buckets does not reset in time.
        """
        if self._sequence is not None:
            match_peer_launches(self._sequence, call="reset()")
        with suppress(ReductionFailedError):
            self.unbind()
        for parameter in (p for group in self._param_groups for p in group):
            if parameter.requires_grad:
                parameter.grad = None
        self.bind()

    def unbind(self) -> None:
        """Remove all hooks, buffers and reductions in flight; harmless when unbound.

        Every `.grad` that is a view becomes None, so a later backward is that of torch alone.
        Reductions in flight are waited for and dropped.

        Raises:
            ReductionFailedError: A process group reported a failure; all is released.
        """
        sequence, self._sequence = self._sequence, None
        self._rebuild = None
        if sequence is not None:
            sequence.release()

    def _ending_sequence(self, call: str) -> BucketSequence:
        """Return the buckets for a call that ends the backwards of a step."""
        sequence = self._bound_sequence(call)
        sequence.refuse_unsound_step()
        sequence.known_count(call)
        refusals.refuse_unfrozen_parameters(self._frozen, call)
        module = self._known_module()
        if module is not None:
            refusals.refuse_replaced_parameters(sequence, module)
        refusals.refuse_exchanged_parameters(sequence)
        return sequence

    def _reduced_sequence(self, call: str) -> BucketSequence:
        """Return the buckets for a call on the sums, which are in `.grad`."""
        sequence = self._bound_sequence(call)
        sequence.refuse_unsound_step()
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

    def _known_module(self) -> nn.Module | None:
        return None if self._module is None else self._module()
