"""Rounding noise: how far a right step may be from the reference.

A right step on a mesh adds in another order than one rank does. A training can make much of so
small a difference: AdamW divides a gradient by its own size, so the noise of a gradient that is
zero in exact arithmetic decides about a whole step of the parameter. So the reference is played
again with the result of each operator changed in its last bits. How far these plays are from the
reference is what rounding can do to this training.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from typing_extensions import override

# A unit in the last place of a value is at most 2 roundings.
_ROUNDINGS: Final = 2.0


def _writes_in_place(func: Any) -> bool:
    """Whether an operator returns memory that it was given."""
    return any(each.alias_info for each in func._schema.returns)  # noqa: SLF001  # no public one


class RoundingNoise(TorchDispatchMode):
    """Change the result of each operator by a random part of a unit in its last place.

    Args:
        seed: Seed of the noise.
        unit: Relative size of one rounding; None takes that of each dtype.
    """

    def __init__(self, seed: int, unit: float | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = torch.Generator().manual_seed(seed)
        self._unit = unit

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.is_view or _writes_in_place(func):
            return result
        return tree_map(self._noisy, result)

    def _noisy(self, value: Any) -> Any:
        if not (isinstance(value, torch.Tensor) and value.is_floating_point()):
            return value
        unit = self._unit or torch.finfo(value.dtype).eps / 2
        noise = torch.rand(value.shape, generator=self._generator, dtype=torch.float64)
        factor = 1 + (2 * noise - 1) * _ROUNDINGS * unit
        return (value.double() * factor).to(value.dtype)
