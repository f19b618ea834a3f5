"""The state of a bucket in its step, and errors about gradients that come too late."""

from enum import Enum, auto

from syncverify.synchronizer.contract.errors import (
    LateAccumulationError,
    OffloadedError,
    SynchronizerError,
    TooManyAccumulationsError,
)

from .gradient_view import GradientView


class BucketState(Enum):
    """The state of a bucket in its step."""

    ACCUMULATING = auto()
    READY = auto()
    LAUNCHED = auto()
    REDUCED = auto()
    OFFLOADED = auto()


# States without a place for a further gradient. A tuple, so that a hook looks it up once.
CLOSED = (BucketState.LAUNCHED, BucketState.REDUCED, BucketState.OFFLOADED)


def excess_error(
    view: GradientView,
    *,
    state: BucketState,
    is_flushed: bool,
    required: int,
    label: str,
) -> SynchronizerError:
    """Return the error for a gradient that has no place in its step."""
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
    # The count includes the running backward since its first gradient.
    count = view.num_accumulations + (not view.num_arrivals)
    nth = f", gradient {view.num_arrivals + 1} of one backward"
    return error(
        headline,
        expected=expected,
        got=f"accumulation {count} of {name}{nth if view.num_arrivals else ''}",
        where=f"{label}, {state.name.lower()}",
    )
