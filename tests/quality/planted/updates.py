"""Synchronizers that are right as long as the caller writes no gradients and parameters in between."""

import torch
import torch.distributed as dist

from studies.redteam.wrong.training import (
    LogsOnASideStream,
    RestoresParameters,
    SubtractsWhatItHandedOut,
)
from syncverify.bugbank.bases.placements import local
from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.bases.view_buckets import ViewBuckets
from syncverify.scenario.specs import MeshSpec
from tests.quality.planted.planted import (
    READ,
    UNBIND,
    ZERO,
    plant,
    planted,
    training,
)

UNREAD = (READ, "read_before_reduced")
TWO_STEPS = training(accumulations=(1, 1), cap_bytes=16)
GRID = MeshSpec((2, 2), ("dp", "tp"))
# Ranks that hold the same part of a parameter start with equal values, others not.
LOCAL_VALUES = tuple(
    training(mesh=GRID, cap_bytes=1024, parameter={"placements": placements})
    for placements in (None, ("S0", "R"), ("R", "S0"))
)


@planted(UNREAD, scenarios=(TWO_STEPS,))
class ReadsParametersLate(SideStreams):
    """A side stream copies the parameters after `wait()`, and joins only in `zero_grad()`."""

    def wait(self) -> None:
        super().wait()
        self.fork()
        with torch.cuda.stream(self.comm), torch.no_grad():
            self.copies = [
                local(parameter).clone()
                for bucket in self.buckets
                for parameter in bucket.parameters
            ]

    def zero_grad(self) -> None:
        self.join()
        super().zero_grad()


@planted((UNBIND, "parameter_changed"), scenarios=LOCAL_VALUES, is_alone=True)
class BroadcastsEverything(ViewBuckets):
    """`bind()` copies every parameter from rank 0, whether its ranks replicate it or not."""

    def bind(self) -> None:
        super().bind()
        for group in self.param_groups:
            for parameter in group:
                dist.broadcast(local(parameter), src=0)


OTHERS = [
    plant(RestoresParameters, (UNBIND, "parameter_changed"), scenarios=(TWO_STEPS,)),
    plant(SubtractsWhatItHandedOut, (ZERO, "gradient_left"), scenarios=(TWO_STEPS,)),
    plant(LogsOnASideStream, UNREAD, scenarios=(TWO_STEPS,)),
]
