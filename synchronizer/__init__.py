"""A gradient synchronizer for DTensor training on any mesh.

Folders, lowest first. A module imports its own folder and the folders above it in this
table.

    contract     options, checks of arguments, errors, the interface of comm hooks
    ranks        sets of ranks, process groups, notes through the store
    plan         the ranks and the bucket of each gradient, and the order of buckets
    transport    the reduction of one bucket: collectives, comm hooks, checks, streams
    bucket       one flat buffer, its gradient views and its state
    backward     autograd hooks on parameters, and the end of the outermost backward
    step         all buckets in a step: launch order, refusals, rebuild, norm

On top lie `synchronizer.py`, the class, and `hooks.py`, the ready comm hooks.

The way of a gradient through a step:

1. `bind()` assigns each parameter to a bucket (`plan/grouping.py`), compares the plans of
   the ranks (`plan/plan_agreement.py`), and makes each `.grad` a view into a flat buffer
   (`bucket/gradient_view.py`).
2. Backward accumulates into the view. A hook (`backward/autograd_hooks.py`) tells the
   bucket, through `step/sequence.py`.
3. A bucket with all its gradients is ready. `step/launch_order.py` launches ready buckets
   in the order that all ranks share; `transport/bucket_reduction.py` starts the reduction
   on a side stream.
4. `wait()` orders the current stream after all reductions.
5. `zero_grad()` starts the next step. The first time, it may cut the buckets anew
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
