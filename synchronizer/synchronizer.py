"""The gradient synchronizer: bind → (backward…, wait, zero_grad)* → unbind."""

import math
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from torch import nn
from typing_extensions import override

from .bucket import BucketState
from .errors import (
    AlreadyBoundError,
    BucketNotReadyError,
    InvalidArgumentError,
    NotBoundError,
    ReductionInFlightError,
    ReplacedGradientError,
    StepStartedError,
)
from .grouping import plan_buckets
from .sequence import BucketSequence

MIB_BYTES = 2**20


class GradientSynchronizer:
    """Sums gradients over the ranks that replicate a parameter, during backward.

    The gradient of a DTensor parameter is summed over every mesh axis on which it is
    replicated and over none on which it is sharded. Plain parameters stay local. Sums
    start from inside the last backward of a step, bucket by bucket, in an order that is
    the same on all ranks. All ranks must pass the same parameters in the same order.

    Each `.grad` is a view into a flat buffer from `bind()` to `unbind()`, which sets it
    to None. Also a context manager, which binds and unbinds.

    Args:
        param_groups: Parameters share buckets only within their group. One that is
            listed twice counts once; a frozen one is left alone.
        bucket_size_mb: Upper bound on a bucket, in MiB (2**20 bytes) of local elements
            in the gradient dtype, which is the parameter's `grad_dtype` where that is
            set. A larger parameter gets a bucket of its own.
        require_accumulations: Gradients that each parameter accumulates in a step.
        parameter_names: How messages call the parameters.

    Raises:
        InvalidArgumentError: A bound or count is not positive, or of the wrong type.
    """

    def __init__(
        self,
        param_groups: list[list[nn.Parameter]],
        bucket_size_mb: float,
        require_accumulations: int,
        *,
        parameter_names: Mapping[nn.Parameter, str] | None = None,
    ) -> None:
        self._param_groups = [list(group) for group in param_groups]
        self._bucket_cap_bytes = _checked_size(bucket_size_mb) * MIB_BYTES
        self._require_accumulations = _checked_count(require_accumulations)
        self._parameter_names = dict(parameter_names or {})
        # None is the unbound state.
        self._sequence: BucketSequence | None = None

    @override
    def __repr__(self) -> str:
        state = "unbound" if self._sequence is None else "bound"
        required = self._require_accumulations
        return f"GradientSynchronizer({state}, require_accumulations={required})"

    def __enter__(self) -> Self:
        self.bind()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.unbind()

    def bind(self) -> None:
        """Allocate the buckets, put a view into every `.grad`, and install the hooks.

        A `.grad` that exists is copied into its view and so takes part in the next sum.
        All ranks bind together: where a sum spans several mesh axes, its ranks create a
        process group here.

        Raises:
            AlreadyBoundError: The synchronizer is bound.
            UnsupportedPlacementError: A parameter is neither replicated nor sharded.
            GradientMismatchError: A `.grad` that exists does not fit its parameter.
        """
        if self._sequence is not None:
            raise AlreadyBoundError(
                "bind() was called on a bound synchronizer",
                expected="unbind() between two calls of bind()",
                got=repr(self),
            )
        plans = plan_buckets(
            self._param_groups,
            bucket_cap_bytes=self._bucket_cap_bytes,
            parameter_names=self._parameter_names,
        )
        self._sequence = BucketSequence(
            plans, require_accumulations=self._require_accumulations
        )

    def wait(self) -> None:
        """Make every gradient safe to read on the current stream.

        Raises:
            NotBoundError: The synchronizer is not bound.
            StepFailedError: An earlier error made a gradient of this step wrong.
            BucketNotReadyError: A gradient is missing; nothing has changed.
            ReplacedGradientError: A `.grad` is not the one that is being summed.
            ReductionFailedError: A process group reported a failure.
        """
        sequence = self._bound("wait()")
        sequence.refuse_failed_step()
        sequence.refuse_open_backward()
        self._refuse_missing_gradients(sequence)
        self._refuse_replaced_gradients(sequence)
        sequence.finish()

    def zero_grad(self) -> None:
        """Zero every gradient and start the next step.

        A `.grad` that was exchanged becomes the view again. Accumulations of a step
        that was not waited for are dropped.

        Raises:
            NotBoundError: The synchronizer is not bound.
            ReductionInFlightError: A reduction was launched and not waited for.
        """
        sequence = self._bound("zero_grad()")
        in_flight = [b for b in sequence.buckets if b.state is BucketState.LAUNCHED]
        if in_flight:
            raise ReductionInFlightError(
                "zero_grad() was called while gradients are being reduced",
                expected="wait() between the last backward and zero_grad()",
                got=f"{len(in_flight)} of {len(sequence.buckets)} buckets in flight",
                where=", ".join(bucket.label for bucket in in_flight),
            )
        sequence.restart()

    def set_required_accumulations(self, require_accumulations: int) -> None:
        """Change how many gradients each parameter accumulates in a step.

        Args:
            require_accumulations: From the step that has not started yet on.

        Raises:
            InvalidArgumentError: The count is not a positive integer.
            StepStartedError: A gradient was accumulated since the last `zero_grad()`.
        """
        count = _checked_count(require_accumulations)
        buckets = self._sequence.buckets if self._sequence else []
        started = [bucket for bucket in buckets if bucket.has_started]
        if started:
            raise StepStartedError(
                "the required accumulations were changed in the middle of a step",
                expected=f"require_accumulations={self._require_accumulations}"
                " until zero_grad()",
                got=f"{count}, and {len(started)} of {len(buckets)} buckets started",
                where=", ".join(bucket.label for bucket in started),
            )
        self._require_accumulations = count
        for bucket in buckets:
            bucket.require(count)

    def unbind(self) -> None:
        """Leave no hook, no buffer and no reduction in flight; harmless when unbound.

        Every `.grad` that is a view becomes None, so a later backward does what it does
        without a synchronizer. Reductions in flight are waited for and dropped.

        Raises:
            ReductionFailedError: A process group reported a failure; all is released.
        """
        sequence, self._sequence = self._sequence, None
        if sequence is not None:
            sequence.release()

    def _bound(self, call: str) -> BucketSequence:
        if self._sequence is None:
            raise NotBoundError(
                f"{call} was called on a synchronizer that is not bound",
                expected="bind() before, unbind() after",
                got=repr(self),
            )
        return self._sequence

    def _refuse_missing_gradients(self, sequence: BucketSequence) -> None:
        unready = [bucket for bucket in sequence.buckets if bucket.unfinished()]
        if not unready:
            return
        required = self._require_accumulations
        counts = [
            f"{view.plan.name} {view.num_accumulations}"
            for bucket in unready
            for view in bucket.unfinished()
        ]
        raise BucketNotReadyError(
            "wait() was called before every gradient was accumulated",
            expected=f"{required} accumulations each (require_accumulations={required})",
            got=", ".join(counts),
            where=", ".join(bucket.label for bucket in unready),
        )

    def _refuse_replaced_gradients(self, sequence: BucketSequence) -> None:
        replaced = [
            (bucket.label, view.plan.name)
            for bucket in sequence.buckets
            if bucket.state is not BucketState.REDUCED
            for view in bucket.views
            if not view.is_attached()
        ]
        if replaced:
            sequence.fail()
            raise ReplacedGradientError(
                "a gradient was replaced after the last backward and before wait()",
                expected="every .grad to be the view that is being summed",
                got="another .grad at " + ", ".join(name for _, name in replaced),
                where=", ".join(dict.fromkeys(label for label, _ in replaced)),
            )


def _checked_size(bucket_size_mb: float) -> float:
    name, value = "bucket_size_mb", bucket_size_mb
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or math.isnan(value) or value <= 0:
        raise _invalid(name, "a number of MiB above 0", value)
    return value


def _checked_count(require_accumulations: int) -> int:
    name, value = "require_accumulations", require_accumulations
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _invalid(name, "an integer of 1 or more", value)
    return value


def _invalid(name: str, expected: str, value: object) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{name} is not {expected}", expected=expected, got=f"{name}={value!r}"
    )
