"""The tensors that a collective will write, and that a program may drop before.

Note [Dropped handles]
    A program may drop the handle of a collective without a wait, and the results too. The
    legacy implementation of NCCL holds inputs and results until the collective is done. That
    of `nccl2` holds the inputs; since torch 2.15 the handle alone holds the results. Their memory
    goes back to its pool with the handle, and the collective writes to it all the same.

    So the caller gets a handle of its own there, and when it is dropped the work knows its
    results weakly. It writes to those that are held by others.

Source:
    torch/csrc/distributed/c10d/nccl2/WorkNCCL.hpp, `TrackedWork` and `outputs_`.
"""

from __future__ import annotations

import weakref
from itertools import compress
from typing import NamedTuple

import torch

from syncverify.sim.network.collectives import Tensors, deliver
from syncverify.trace.regions import has_memory


class _Place(NamedTuple):
    """A tensor in a storage, which is kept alive by others alone.

    `layout` has size, stride and offset, in elements.
    """

    storage: weakref.ref[torch.UntypedStorage]
    dtype: torch.dtype
    layout: tuple[torch.Size, tuple[int, ...], int]

    def tensor(self) -> torch.Tensor | None:
        """Return the tensor again; None if its memory is gone."""
        storage = self.storage()
        if storage is None:
            return None
        size, stride, offset = self.layout
        return torch.empty(0, dtype=self.dtype).set_(storage, offset, size, stride)


class Results:
    """The tensors that a collective writes, in order.

    Args:
        tensors: The tensors, which are kept alive until `let_go()`.
    """

    def __init__(self, tensors: Tensors) -> None:
        self._kept: Tensors = tensors
        self._places: list[_Place] = []

    @property
    def kept(self) -> Tensors:
        """The tensors, none of them after `let_go()`."""
        return self._kept

    def let_go(self) -> None:
        """Keep none of the tensors alive; see Note [Dropped handles]."""
        self._places = [_place_of(each) for each in self._kept]
        self._kept = []

    def living(self) -> Tensors:
        """List the tensors whose memory is still there."""
        found = (place.tensor() for place in self._places)
        return [*self._kept, *(each for each in found if each is not None)]

    def write(self, values: Tensors) -> None:
        """Write a value to each tensor whose memory is still there."""
        there = [has_memory(each) for each in self._kept]
        deliver([*compress(values, there)], [*compress(self._kept, there)])
        for place, value in zip(self._places, values, strict=False):
            tensor = place.tensor()
            if tensor is not None and has_memory(tensor):
                deliver([value], [tensor])


def _place_of(tensor: torch.Tensor) -> _Place:
    layout = tensor.size(), tensor.stride(), int(tensor.storage_offset())
    return _Place(weakref.ref(tensor.untyped_storage()), tensor.dtype, layout)


def without_memory(tensors: Tensors) -> Tensors:
    """Return tensors of the same dtypes and sizes without memory."""
    return [torch.empty_like(each, device="meta") for each in tensors]
