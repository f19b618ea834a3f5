"""A partial gradient is reduced when it arrives, and again with its bucket.

Reported in pytorch/torchtitan#2106.
"""

from collections.abc import Sequence

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Placement
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import MainGrads
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/torchtitan#2106",
    trigger="2 ranks, a gradient that arrives as Partial",
    violates="accumulation_is_local_until_reduced",
    cause="reduced_twice",
)
class RedistributesWhatArrives(MainGrads):
    """A partial gradient is reduced when it arrives, and again with its bucket."""

    features = frozenset({"placement=partial"})

    @override
    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        if isinstance(parameter.grad, DTensor) and isinstance(parameter, DTensor):
            parameter.grad = reduced(parameter.grad, parameter.placements)
        super().on_accumulated(slot, parameter)


def reduced(grad: DTensor, placements: Sequence[Placement]) -> DTensor:
    """Redistribute axis by axis: torch warns where several are reduced at once."""
    for axis in range(len(placements)):
        left = grad.placements[axis + 1 :]
        grad = grad.redistribute(placements=[*placements[: axis + 1], *left])
    return grad
