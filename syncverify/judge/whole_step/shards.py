"""Whole tensors of a mesh, put together after the run from the parts that ranks kept.

`DTensor.full_tensor()` is a collective for each tensor; a play makes hundreds of them. Here a rank
keeps its part and where it lies, and no rank waits for another one. This is the only module that
imports `torch.distributed.tensor._utils`. We rely on one fact, and a test says so:
`compute_local_shape_and_global_offset` returns the shape and the place of this rank's part.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.distributed.tensor import DTensor, Partial, Placement
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset


@dataclass(frozen=True, slots=True)
class KeptPart:
    """A rank's part of a whole tensor that is filled after the run."""

    whole: torch.Tensor  # the tensor to fill
    local: torch.Tensor
    offset: tuple[int, ...]  # where the part begins, by dimension
    # The ranks whose parts add up to the whole, as this rank sees it.
    ranks: tuple[int, ...]


# Parts of one rank, by a key that all ranks use for one tensor.
KeptParts = dict[Hashable, KeptPart]


@torch.no_grad()
def whole(value: torch.Tensor, key: Hashable, kept: KeptParts) -> torch.Tensor:
    """Return a copy of a tensor; of a DTensor all of it, which `fill` may write later.

    The part of a DTensor is kept by a key that names the tensor on all ranks, if the ranks' parts add
    up to it.
    """
    if not isinstance(value, DTensor):
        return value.detach().clone()
    part = _part(value)
    if part is None:
        with_all: torch.Tensor = value.full_tensor()
        return with_all.detach().clone()
    kept[key] = part
    return part.whole


def _part(value: DTensor) -> KeptPart | None:
    """Return the part of a DTensor; None where only torch can put the parts together."""
    if not value.dim() or not all(map(_adds_up, value.placements)):
        return None
    mesh = value.device_mesh
    laid_out = value.shape, mesh, value.placements
    shape, offset = compute_local_shape_and_global_offset(*laid_out)
    local = value.to_local().detach().clone()
    if tuple(local.shape) != tuple(shape):
        return None
    whole = torch.zeros(value.shape, dtype=value.dtype)
    places = zip(mesh.get_coordinate() or (), value.placements, strict=True)
    index = tuple(at if each.is_replicate() else slice(None) for at, each in places)
    ranks = torch.as_tensor(mesh.mesh[index]).flatten().tolist()
    return KeptPart(whole, local, tuple(offset), tuple(ranks))


def local_part(value: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor."""
    return value.to_local() if isinstance(value, DTensor) else value


def splits(placement: Placement) -> bool:
    """Tell whether a placement splits a tensor; torch has several classes of such placements."""
    return not (placement.is_replicate() or placement.is_partial())


def _adds_up(placement: Placement) -> bool:
    is_sum = type(placement) is Partial and placement.reduce_op == "sum"
    return is_sum or not placement.is_partial()


def fill(parts: Sequence[Mapping[Hashable, KeptPart]]) -> None:
    """Fill the whole tensors of all ranks, after the run; parts are given by rank."""
    for own in parts:
        for key, part in own.items():
            for rank in part.ranks:
                if (other := parts[rank].get(key)) is not None:
                    begins = zip(other.offset, other.local.shape, strict=True)
                    place = tuple(slice(at, at + size) for at, size in begins)
                    part.whole[place] += other.local
