"""The gradient synchronizer: bind → (backward…, wait, zero_grad)* → unbind."""

import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, ClassVar, Self

import torch
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
from syncverify.synchronizer.plan.plan_agreement import (
    Fingerprint,
    mesh_ranks,
    refuse_different_plans,
)
from syncverify.synchronizer.ranks.rendezvous import open_rendezvous
from syncverify.synchronizer.step import refusals
from syncverify.synchronizer.step.accumulation import Accumulation
from syncverify.synchronizer.step.rebuild import Rebuild
from syncverify.synchronizer.step.replicas import broadcast
from syncverify.synchronizer.step.required_count import known_count
from syncverify.synchronizer.step.sequence import BucketSequence

MIB_BYTES = 2**20


class GradientSynchronizer(Accumulation):
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

    Two bound synchronizers with two ranks in common start no sum before `wait()`, since
    backwards may take turns in another way on each rank. One synchronizer for all parameters
    overlaps.

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
        super().__init__(require_accumulations)
        # The caller's own lists: a parameter that is appended before `bind()` counts.
        self._param_groups = parameter_groups.checked(param_groups)
        cap_mib = arguments.checked_positive(
            "bucket_size_mb", bucket_size_mb, " of MiB"
        )
        self._bucket_cap_bytes = cap_mib * MIB_BYTES
        self._parameter_names = dict(parameter_names or {})
        self._config = config
        self._rebuild: Rebuild | None = None
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
            PlanMismatchError: Ranks that share buckets differ, or do not bind in time.
            GradientMismatchError: An existing `.grad` does not fit its parameter.
        """
        if self._sequence is not None:
            raise LifecycleError(
                "bind() was called on a bound synchronizer",
                expected="unbind() between two calls of bind()",
                got=repr(self),
                hint="call unbind() first",
            )
        groups, cap_bytes = self._param_groups, self._bucket_cap_bytes
        candidates = list_candidates(groups, self._parameter_names, self._config)
        parameter_groups.refuse_local_only(groups, self._config)
        plans = cut_buckets(candidates, bucket_cap_bytes=cap_bytes, config=self._config)
        rendezvous = open_rendezvous(Fingerprint.of(plans).scopes, mesh_ranks(plans))
        refuse_different_plans(plans, rendezvous, self._config)
        self._sequence = BucketSequence(
            plans,
            require_accumulations=self._require_accumulations,
            config=self._config,
            rendezvous=rendezvous,
        )
        self._frozen = frozen_parameters(groups, self._parameter_names)
        self._rebuild = Rebuild(
            candidates, rendezvous, bucket_cap_bytes=cap_bytes, config=self._config
        )

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

        As DDP does when it wraps a module; all ranks call it, for instance after `bind()`.
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
        sequence = self._bound_sequence("flush()")
        self._refuse_unsound_end(sequence, "flush()")
        if self._config.unused == "error":
            refusals.refuse_unused_parameters(sequence)
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
        sequence = self._bound_sequence("wait()")
        self._refuse_unsound_end(sequence, "wait()")
        if factor is not None:
            refusals.refuse_reduced_step(sequence)
        if self._config.unused == "error":
            refusals.refuse_missing_gradients(sequence)
        else:
            refusals.refuse_missing_backwards(sequence)
        refusals.refuse_replaced_gradients(sequence)
        if self._rebuild is not None:
            self._rebuild.note_complete(sequence)
        was_reduced = sequence.is_reduced
        drop_unused = self._config.unused == "keep_none"
        sequence.finish(drop_unused=drop_unused, scale=factor)
        if self._config.check_finite and not was_reduced:
            refusals.refuse_nonfinite_gradients(sequence)

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
        plans = None if self._rebuild is None else self._rebuild.plan(sequence)
        sequence.restart(set_to_none=set_to_none)
        if plans is not None:
            try:
                sequence.rebuild(plans)
            except BaseException:
                self.unbind()
                raise
            sequence.restart(set_to_none=set_to_none)

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
            self._sequence.match_peer_launches(call="reset()")
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

    def _refuse_unsound_end(self, sequence: BucketSequence, call: str) -> None:
        refusals.refuse_unsound_step(sequence)
        known_count(self._require_accumulations, call)
        refusals.refuse_unfrozen_parameters(self._frozen, call)
        module = self._known_module()
        if module is not None:
            refusals.refuse_replaced_parameters(sequence, module)
        refusals.refuse_exchanged_parameters(sequence)

    def _known_module(self) -> nn.Module | None:
        return None if self._module is None else self._module()
