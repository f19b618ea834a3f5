"""A gradient that is not contiguous is reduced as a copy, which is then dropped.

Reported in NVIDIA/Megatron-LM#5337.
"""

import torch
import torch.distributed as dist
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import MainGrads
from syncverify.bugbank.bases.placements import local_grad
from syncverify.bugbank.entry import reported


class ReducesContiguous(MainGrads):
    """Right: a gradient that is not contiguous is reduced as a copy, and copied back."""

    features = frozenset({"memory_format=transposed"})

    @override
    def wait(self) -> None:
        for parameter in self.trainable():
            for group in self.groups_of(parameter):
                self.reduce_part(local_grad(parameter), group)

    @override
    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        pass

    def reduce_part(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        """Reduce a gradient in its place."""
        reduced = part.contiguous()
        dist.all_reduce(reduced, group=group)
        part.copy_(reduced)


@reported(
    "NVIDIA/Megatron-LM#5337",
    trigger="2 ranks, a transposed parameter",
    violates="gradient_equals_reference",
    cause="result_dropped",
)
class DropsReducedCopy(ReducesContiguous):
    """A gradient that is not contiguous is reduced as a copy, which is then dropped."""

    @override
    def reduce_part(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        dist.all_reduce(part.contiguous(), group=group)
