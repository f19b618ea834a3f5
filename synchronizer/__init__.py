"""A gradient synchronizer for DTensor training on any mesh."""

from .config import SynchronizerConfig
from .errors import (
    AlreadyBoundError,
    BucketNotReadyError,
    GradientMismatchError,
    GradientPlacementError,
    InFlightWriteError,
    InvalidArgumentError,
    LateAccumulationError,
    LaunchOrderError,
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
from .synchronizer import GradientSynchronizer

__all__ = [
    "AlreadyBoundError",
    "BucketNotReadyError",
    "ExplainedBucket",
    "Explanation",
    "GradientMismatchError",
    "GradientPlacementError",
    "GradientSynchronizer",
    "InFlightWriteError",
    "InvalidArgumentError",
    "LateAccumulationError",
    "LaunchOrderError",
    "NotBoundError",
    "NotReducedError",
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
