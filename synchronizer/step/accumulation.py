"""Calls that say which gradients count: those of no backward, and those made by hand."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from syncverify.synchronizer.contract import arguments
from syncverify.synchronizer.step import refusals
from syncverify.synchronizer.step.reduced_gradients import ReducedGradients
from syncverify.synchronizer.step.required_count import known_count


class Accumulation(ReducedGradients):
    """The part of a synchronizer that says which gradients its steps count."""

    def __init__(self, require_accumulations: int | None) -> None:
        super().__init__()
        self._require_accumulations: int | None = None  # not set
        if require_accumulations is not None:
            count = arguments.checked_count(require_accumulations)
            self._require_accumulations = count

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
        refusals.refuse_unsound_step(sequence)
        known_count(self._require_accumulations, "mark_ready()")
        sequence.mark_ready(parameters)

    def set_required_accumulations(self, require_accumulations: int) -> None:
        """Set or change the number of accumulations of each parameter in a step.

        The number holds until the next call, also after `unbind()`, `bind()` and `reset()`.

        Args:
            require_accumulations: New number, from the next step on; before `bind()`, or
                after it and before the first backward of the step.

        Raises:
            InvalidArgumentError: The count is not a positive integer.
            LifecycleError: A gradient was accumulated since the last `zero_grad()`.
        """
        count = arguments.checked_count(require_accumulations)
        if self._sequence is not None:
            refusals.refuse_started_step(self._sequence, count=count)
            self._sequence.require(count)
        self._require_accumulations = count
