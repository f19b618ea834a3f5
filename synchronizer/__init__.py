"""A gradient synchronizer for DTensor training on any mesh."""

from .config import SynchronizerConfig
from .errors import (
    AlreadyBoundError,
    BucketNotReadyError,
    GradientDisagreementError,
    GradientMismatchError,
    GradientPlacementError,
    InvalidArgumentError,
    LateAccumulationError,
    NotBoundError,
    NotReducedError,
    PlanMismatchError,
    ProcessGroupError,
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
    "GradientDisagreementError",
    "GradientMismatchError",
    "GradientPlacementError",
    "GradientSynchronizer",
    "InvalidArgumentError",
    "LateAccumulationError",
    "NotBoundError",
    "NotReducedError",
    "PlanMismatchError",
    "ProcessGroupError",
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
