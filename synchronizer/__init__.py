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
    NonFiniteGradientError,
    NotBoundError,
    NotOffloadedError,
    NotReducedError,
    OffloadedError,
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
from .timing import BucketTiming

__all__ = [
    "AlreadyBoundError",
    "BucketNotReadyError",
    "BucketTiming",
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
    "NonFiniteGradientError",
    "NotBoundError",
    "NotOffloadedError",
    "NotReducedError",
    "OffloadedError",
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
