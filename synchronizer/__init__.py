"""A gradient synchronizer for DTensor training on any mesh."""

from .errors import (
    AlreadyBoundError,
    BucketNotReadyError,
    GradientMismatchError,
    GradientPlacementError,
    InvalidArgumentError,
    LateAccumulationError,
    NotBoundError,
    ReductionFailedError,
    ReductionInFlightError,
    ReplacedGradientError,
    StepFailedError,
    StepStartedError,
    SynchronizerError,
    TooManyAccumulationsError,
    UnsupportedPlacementError,
)
from .synchronizer import GradientSynchronizer

__all__ = [
    "AlreadyBoundError",
    "BucketNotReadyError",
    "GradientMismatchError",
    "GradientPlacementError",
    "GradientSynchronizer",
    "InvalidArgumentError",
    "LateAccumulationError",
    "NotBoundError",
    "ReductionFailedError",
    "ReductionInFlightError",
    "ReplacedGradientError",
    "StepFailedError",
    "StepStartedError",
    "SynchronizerError",
    "TooManyAccumulationsError",
    "UnsupportedPlacementError",
]
