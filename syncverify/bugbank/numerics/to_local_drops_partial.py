"""A gradient labelled Replicate counts as complete: only Partial is summed.

Reported in pytorch/torchtitan#2532.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import Bucket, MainGrads
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/torchtitan#2532",
    trigger="2 ranks, a gradient that is labelled Replicate",
    violates="gradient_equals_reference",
    cause="not_reduced",
)
class TrustsLabels(MainGrads):
    """A gradient labelled Replicate counts as complete: only Partial is summed."""

    features = frozenset({"placement=partial"})

    @override
    def bind(self) -> None:
        self.partial: set[nn.Parameter] = set()
        super().bind()

    @override
    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        gradient = parameter.grad
        if isinstance(gradient, DTensor) and any(
            placement.is_partial() for placement in gradient.placements
        ):
            self.partial.add(parameter)
        super().on_accumulated(slot, parameter)

    @override
    def reduce(self, bucket: Bucket) -> None:
        for parameter, slot in bucket.slots.items():
            if parameter in self.partial:
                for group in bucket.groups:
                    dist.all_reduce(slot, group=group)
