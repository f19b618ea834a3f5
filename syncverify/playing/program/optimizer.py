"""The optimizer of the training program: between `wait()` and `zero_grad()` it writes memory.

Like any optimizer it works in place and on the caller's stream: it scales the gradients, as
clipping does, and then updates the parameters. Losses are linear in the parameters, so that
new values change no gradient; those of real modules are not, and are written unchanged.
"""

from __future__ import annotations

from collections.abc import Collection

import torch

# A power of two: exact, and no number of ranks or accumulations that a mean divides by.
GRADIENT_SCALE = 1 / 16
_UPDATE = 1


@torch.no_grad()
def update(
    parameters: Collection[torch.Tensor],
    gradients: Collection[torch.Tensor],
    *,
    keeps_values: bool,
) -> None:
    """Scale the local parts of gradients in place, and update local parts of parameters.

    With `keeps_values` the parameters are written, and keep their values.
    """
    if gradients:
        torch._foreach_mul_([*gradients], GRADIENT_SCALE)
    if parameters:
        torch._foreach_add_([*parameters], 0 if keeps_values else _UPDATE)
