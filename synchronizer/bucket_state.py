"""Where a bucket is in its step, and what is wrong with a gradient that comes then."""

from enum import Enum, auto

from .errors import (
    LateAccumulationError,
    OffloadedError,
    SynchronizerError,
    TooManyAccumulationsError,
)
from .gradient_view import GradientView


class BucketState(Enum):
    """Where a bucket is in its step."""

    ACCUMULATING = auto()
    READY = auto()
    LAUNCHED = auto()
    REDUCED = auto()
    OFFLOADED = auto()


# There is no place for a further gradient. Looked up once, and not in each hook.
CLOSED = (BucketState.LAUNCHED, BucketState.REDUCED, BucketState.OFFLOADED)


def excess_error(
    view: GradientView,
    *,
    state: BucketState,
    is_flushed: bool,
    required: int,
    label: str,
) -> SynchronizerError:
    """Say what is wrong with a gradient that has no place in its step.

    Args:
        view: Of the parameter that got it.
        state: Of the bucket.
        is_flushed: Whether `flush()` ended the step.
        required: Accumulations of the step.
        label: Of the bucket.

    Returns:
        The error to raise.
    """
    name = view.plan.name
    expected = f"{required} accumulations (require_accumulations={required})"
    if state is BucketState.OFFLOADED:
        return OffloadedError(
            f"{name} accumulated a gradient while the buffers were offloaded",
            expected="onload() between offload() and the next backward",
            got=f"a gradient of {name}",
            where=label,
        )
    if state in CLOSED:
        error: type[SynchronizerError] = LateAccumulationError
        headline = f"{name} accumulated a gradient after its bucket was launched"
    elif is_flushed:
        error = LateAccumulationError
        headline = f"{name} accumulated a gradient after flush()"
        expected = "no gradient between flush() and zero_grad()"
    else:
        error = TooManyAccumulationsError
        headline = f"{name} accumulated too many gradients"
    # A backward that goes on was counted when it brought its first gradient.
    count = view.num_accumulations + (not view.num_arrivals)
    nth = f", gradient {view.num_arrivals + 1} of one backward"
    return error(
        headline,
        expected=expected,
        got=f"accumulation {count} of {name}{nth if view.num_arrivals else ''}",
        where=f"{label}, {state.name.lower()}",
    )
