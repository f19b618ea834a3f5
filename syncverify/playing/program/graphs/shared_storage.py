"""Gradients of several parameters that are parts of one storage, as fused kernels write them."""

from __future__ import annotations

from typing import Any, Final

import torch
from typing_extensions import override

from syncverify.playing.program.graphs.custom_function import call

INTO_ONE_STORAGE: Final = "saves_for_backward/into_one_storage"


class OneStorage:
    """Hands out parts of one tensor, one part for each product that was made.

    A part is handed out once. A second backward over the same graph gets parts of another
    tensor, because autograd keeps those of the first one as gradients.
    """

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._given = set[int]()
        self._whole: torch.Tensor | None = None

    def dot(self, local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
        """Return a scalar in float32; its gradient by `local` is the constant, in a part."""
        self._ends.append(self._num_elements + constant.numel())
        return call(_Product, local, constant, self, len(self._ends) - 1)  # type: ignore[no-any-return]

    def write(self, place: int, gradient: torch.Tensor) -> torch.Tensor:
        """Write a gradient into the part of a product; return the part."""
        if self._whole is None or place in self._given:
            self._whole = gradient.new_empty(self._num_elements)
            self._given.clear()
        self._given.add(place)
        end = self._ends[place]
        part = self._whole[end - gradient.numel() : end].view(gradient.shape)
        return part.copy_(gradient)

    @property
    def _num_elements(self) -> int:
        return self._ends[-1] if self._ends else 0


class _Product(torch.autograd.Function):
    @override
    @staticmethod
    def forward(
        ctx: Any,
        local: torch.Tensor,
        constant: torch.Tensor,
        one: OneStorage,
        place: int,
    ) -> torch.Tensor:
        ctx.constant, ctx.one, ctx.place = constant, one, place
        return (local * constant).to(torch.float32).sum()

    @override
    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        scaled = (gradients[0] * ctx.constant).to(ctx.constant.dtype)
        return ctx.one.write(ctx.place, scaled), None, None, None


def into_one_storage(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use a storage of its own: `OneStorage` has the parts of several parameters."""
    return OneStorage().dot(local, constant)
