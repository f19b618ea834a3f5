"""A gradient synchronizer for DTensor training on any mesh."""

from .comm_hook import CommHook, HookBucket
from .config import SynchronizerConfig
from .errors import (
    AlreadyBoundError,
    BucketNotReadyError,
    CommHookError,
    GradientMismatchError,
    GradientPlacementError,
    InvalidArgumentError,
    LateAccumulationError,
    NotBoundError,
    NotReducedError,
    PlanMismatchError,
    ReductionFailedError,
    ReductionInFlightError,
    ReplacedGradientError,
    StepFailedError,
    StepReducedError,
    StepStartedError,
    SynchronizerError,
    TooManyAccumulationsError,
    UnsupportedPlacementError,
)
from .explanation import ExplainedBucket, Explanation
from .ownership import OwnedGradient
from .synchronizer import GradientSynchronizer

__all__ = [
    "AlreadyBoundError",
    "BucketNotReadyError",
    "CommHook",
    "CommHookError",
    "ExplainedBucket",
    "Explanation",
    "GradientMismatchError",
    "GradientPlacementError",
    "GradientSynchronizer",
    "HookBucket",
    "InvalidArgumentError",
    "LateAccumulationError",
    "NotBoundError",
    "NotReducedError",
    "OwnedGradient",
    "PlanMismatchError",
    "ReductionFailedError",
    "ReductionInFlightError",
    "ReplacedGradientError",
    "StepFailedError",
    "StepReducedError",
    "StepStartedError",
    "SynchronizerConfig",
    "SynchronizerError",
    "TooManyAccumulationsError",
    "UnsupportedPlacementError",
]
