"""Other tensors in the place of gradients, as a training program may put them there."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn

from syncverify.playing.program.training_program import Replace


class ReplacedGradients:
    """Replaces the gradients of parameters, and holds the old and the new tensors.

    Their memory is of one stream's pool, and work of other streams reads it: the optimizer on a
    side stream, and the next accumulation, which may free it. So the training program holds it
    until all streams have met.
    """

    def __init__(self, parameters: Collection[nn.Parameter]) -> None:
        self._parameters = parameters
        self._held: list[object] = []

    @torch.no_grad()
    def replace(self, action: Replace) -> None:
        """Put products in the place of gradients, as `p.grad = p.grad * factor` does."""
        for parameter in [*self._parameters][action.first :: action.every]:
            if (gradient := parameter.grad) is not None:
                parameter.grad = gradient * action.factor
                self._held += [gradient, parameter.grad]

    def let_go(self) -> None:
        """Drop the tensors: the streams have met."""
        self._held.clear()
