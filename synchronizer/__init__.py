"""A gradient synchronizer for DTensor training on any mesh.

Folders, lowest first. A module imports its own folder and the folders above it in this
table.

    contract     options, checks of arguments, errors, the interface of comm hooks
    ranks        sets of ranks, process groups, notes through the store
    plan         the ranks and the bucket of each gradient, and the order of buckets
    transport    the reduction of one bucket: streams, collectives, comm hooks
    bucket       one flat buffer, its gradient views and its state
    backward     autograd hooks on parameters, and the end of the outermost backward
    step         all buckets in a step: launch order, refusals, rebuild, norm

On top lie `synchronizer.py`, the class, and `hooks.py`, the ready comm hooks.

A gradient passes these files in each step. Whoever reads them in this order has read the
synchronizer; all other files are options, errors, and the plan that `bind()` makes once.

    backward/autograd_hooks.py   the hook that autograd calls for a gradient, and the end of
                                 the outermost backward
    step/sequence.py             counts it, and launches ready buckets in the one order of all
                                 ranks
    bucket/bucket.py             is ready with all its gradients, and starts the reduction on a
                                 side stream, ordered after their writers
    bucket/gradient_view.py      the view that is `.grad`; copies a gradient from elsewhere
    plan/wire_format.py          casts the buffer before the sum, and multiplies after it
    transport/reduction.py       the side stream and the collective
    synchronizer.py              `wait()`: orders the current stream after all reductions
    step/refusals.py             the errors of `wait()`, before anything changes

`zero_grad()` starts the next step. The first time, it may cut the buckets anew
(`step/rebuild.py`).
"""

if __name__ == "synchronizer":  # as it lies in a checkout
    raise ImportError(
        f"expected the name 'syncverify.{__name__}', got {__name__!r}, the folder of a "
        f"checkout at {__file__}; import syncverify.{__name__}"
    )

from syncverify.synchronizer.contract.comm_hook import CommHook, HookBucket
from syncverify.synchronizer.contract.config import SynchronizerConfig
from syncverify.synchronizer.contract.errors import (
    BucketNotReadyError,
    CommHookError,
    GradientMismatchError,
    InFlightWriteError,
    InvalidArgumentError,
    LateAccumulationError,
    LifecycleError,
    NonFiniteGradientError,
    PlanMismatchError,
    ReductionFailedError,
    ReplacedGradientError,
    StepFailedError,
    SynchronizerError,
    UnfrozenParameterError,
    UnsupportedPlacementError,
)
from syncverify.synchronizer.plan.explanation import ExplainedBucket, Explanation
from syncverify.synchronizer.plan.ownership import OwnedGradient
from syncverify.synchronizer.synchronizer import GradientSynchronizer

__all__ = [
    "BucketNotReadyError", "CommHook", "CommHookError", "ExplainedBucket", "Explanation",
    "GradientMismatchError", "GradientSynchronizer", "HookBucket", "InFlightWriteError",
    "InvalidArgumentError", "LateAccumulationError", "LifecycleError",
    "NonFiniteGradientError", "OwnedGradient", "PlanMismatchError", "ReductionFailedError",
    "ReplacedGradientError", "StepFailedError", "SynchronizerConfig", "SynchronizerError",
    "UnfrozenParameterError", "UnsupportedPlacementError",
]  # fmt: skip
