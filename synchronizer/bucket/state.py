"""The state of a bucket in its step, and errors about gradients that come too late."""

from enum import Enum, auto

from syncverify.synchronizer.bucket.gradient_view import GradientView
from syncverify.synchronizer.contract.errors import LateAccumulationError


class BucketState(Enum):
    """The state of a bucket in its step."""

    ACCUMULATING = auto()
    READY = auto()
    LAUNCHED = auto()
    REDUCED = auto()


def excess_error(
    view: GradientView,
    *,
    state: BucketState,
    is_flushed: bool,
    num_arrivals: int,
    required: int | None,
    label: str,
) -> LateAccumulationError:
    """Return the error for a gradient that has no place in its step."""
    name = view.plan.name
    expected = f"{required} accumulations (require_accumulations={required})"
    if state in {BucketState.LAUNCHED, BucketState.REDUCED}:
        headline = f"{name} accumulated a gradient after its bucket was launched"
        if state is BucketState.REDUCED:
            expected += ", then synchronizer.zero_grad() before the next backward"
    elif is_flushed:
        headline = f"{name} accumulated a gradient after flush()"
        expected = "no gradient between flush() and synchronizer.zero_grad()"
    else:
        headline = f"{name} accumulated too many gradients"
    # The count includes the running backward since its first gradient.
    count = view.num_accumulations + (not num_arrivals)
    nth = f", gradient {num_arrivals + 1} of one backward"
    return LateAccumulationError(
        headline,
        expected=expected,
        got=f"accumulation {count} of {name}{nth if num_arrivals else ''}",
        where=f"{label}, {state.name.lower()}",
    )
