"""Synchronizers that are right as long as the caller writes no gradients and parameters in between."""

import torch
import torch.distributed as dist
from typing_extensions import override

from studies.redteam.wrong.training import (
    LogsOnASideStream,
    RestoresParameters,
    SubtractsWhatItHandedOut,
)
from syncverify.bugbank.bases.placements import local
from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.bases.view_buckets import ViewBuckets
from tests.quality.planted.planted import planted


class ReadsParametersLate(SideStreams):
    """A side stream copies the parameters after `wait()`, and joins only in `zero_grad()`."""

    @override
    def wait(self) -> None:
        super().wait()
        self.fork()
        with torch.cuda.stream(self.comm), torch.no_grad():
            self.copies = [
                local(parameter).clone()
                for bucket in self.buckets
                for parameter in bucket.parameters
            ]

    @override
    def zero_grad(self) -> None:
        self.join()
        super().zero_grad()


class BroadcastsEverything(ViewBuckets):
    """`bind()` copies every parameter from rank 0, whether its ranks replicate it or not."""

    @override
    def bind(self) -> None:
        super().bind()
        for group in self.param_groups:
            for parameter in group:
                dist.broadcast(local(parameter), src=0)


READ = ("wait_orders_reads_after_reduce", "read_before_reduced")
UPDATE_DEFECTS = [
    planted(RestoresParameters, ("unbind_restores_parameters", "parameter_changed")),
    planted(SubtractsWhatItHandedOut, ("zero_grad_clears", "gradient_left")),
    planted(LogsOnASideStream, READ),
    planted(ReadsParametersLate, READ),
]
