"""Words for layouts have the meaning of torch's own types."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Placement, Replicate, Shard
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard

from syncverify.scenario.distribution import _placement, wrap_local
from syncverify.scenario.layout import coordinates, local_shape
from syncverify.scenario.specs import MeshSpec, ParameterSpec

CUBE = MeshSpec((2, 2, 2), ("dp", "tp", "ep"))


@pytest.mark.parametrize(
    ("codes", "factors"),
    [
        (("_S0", "S0", "R"), [2]),
        (("R", "_S0", "S0"), [2]),
        (("_S0", "_S0", "S0"), [4, 2]),
        (("_S0", "R", "S0"), [2]),
    ],
)
def test_strided_shards_are_torchs(codes: tuple[str, ...], factors: list[int]) -> None:
    spec = ParameterSpec("p", (8, 3), codes)
    placed = [_placement(CUBE, codes, axis) for axis in range(3)]
    found = [p.split_factor for p in placed if isinstance(p, _StridedShard)]
    assert found == factors
    for rank in range(8):
        shape, _ = _compute_local_shape_and_global_offset(
            spec.global_shape, CUBE.shape, list(coordinates(CUBE, rank)), placed
        )
        assert local_shape(CUBE, spec, rank) == tuple(shape)


GRID = MeshSpec((2, 2), ("dp", "tp"))


@pytest.mark.parametrize(
    ("spec", "placements", "stride"),
    [
        (ParameterSpec("p", (5, 4), ("S0", "R"), memory_format="transposed"),
            (Shard(0), Replicate()), (1, 5)),
        (ParameterSpec("p", (5, 4), ("P", "S1")), (Replicate(), Shard(1)), (4, 1)),
        (ParameterSpec("p", (5, 4), ("-", "S0")), (Shard(0),), (4, 1)),
        (ParameterSpec("p", (8,), ("_S0", "S0")), (_StridedShard(0, split_factor=2), Shard(0)),
            (1,)),
        # More than any memory holds: only the part is ever made.
        (ParameterSpec("p", (2**60,), ("R", "R")), (Replicate(), Replicate()), (1,)),
    ],
)  # fmt: skip
def test_a_part_becomes_a_tensor_of_the_whole_without_communication(
    spec: ParameterSpec,
    placements: tuple[Placement, ...],
    stride: tuple[int, ...],
    on_ranks: Callable[[int, Callable[[int], Any]], list[Any]],
) -> None:
    def program(rank: int) -> tuple[object, ...]:
        mesh = init_device_mesh("cpu", GRID.shape, mesh_dim_names=GRID.axis_names)
        if rank:  # rank 0 would wait for the others if it communicated
            return ()
        tensor = wrap_local(torch.zeros(1), mesh, GRID, spec)
        return tensor.placements, tuple(tensor.shape), tensor.stride()

    assert on_ranks(4, program)[0] == (placements, spec.global_shape, stride)
