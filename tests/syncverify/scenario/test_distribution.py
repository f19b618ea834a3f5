"""Words for layouts have the meaning of torch's own types."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Placement, Replicate, Shard
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard

from syncverify.backends.sim import SimBackend
from syncverify.judge.properties import check
from syncverify.scenario.distribution import _placements, in_format, wrap_local
from syncverify.scenario.layout import contributing_ranks, coordinates, local_shape
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import resolve

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
    placed = _placements(CUBE, spec)
    found = [p.split_factor for p in placed if isinstance(p, _StridedShard)]
    assert found == factors
    for rank in range(8):
        shape, _ = _compute_local_shape_and_global_offset(
            spec.global_shape, CUBE.shape, list(coordinates(CUBE, rank)), placed
        )
        assert local_shape(CUBE, spec, rank) == tuple(shape)


@pytest.mark.parametrize(
    ("memory_format", "shape", "order"),
    [
        ("contiguous", (2, 3), (3, 1)),
        ("transposed", (2, 3), (1, 2)),
        ("transposed", (4, 2, 3), (6, 1, 2)),
        ("channels_last", (2, 3, 4, 5), (60, 1, 15, 3)),
        ("transposed", (2, 0), (1, 1)),  # nothing to lay out
        ("channels_last", (0, 3, 4, 5), (60, 20, 5, 1)),
    ],
)
def test_memory_format_changes_strides_and_no_value(
    memory_format: str, shape: tuple[int, ...], order: tuple[int, ...]
) -> None:
    tensor = torch.arange(math.prod(shape)).reshape(shape)
    formatted = in_format(tensor, memory_format)
    assert formatted.stride() == order
    assert torch.equal(formatted, tensor)


GRID = MeshSpec((2, 2), ("dp", "tp"))


@pytest.mark.parametrize(
    ("spec", "placements", "stride"),
    [
        (
            ParameterSpec("p", (5, 4), ("S0", "R"), memory_format="transposed"),
            (Shard(0), Replicate()),
            (1, 5),
        ),
        (ParameterSpec("p", (5, 4), ("P", "S1")), (Replicate(), Shard(1)), (4, 1)),
        (ParameterSpec("p", (5, 4), ("-", "S0")), (Shard(0),), (4, 1)),
        (
            ParameterSpec("p", (8,), ("_S0", "S0")),
            (_StridedShard(0, split_factor=2), Shard(0)),
            (1,),
        ),
        # More than any memory holds: only the part is ever made.
        (ParameterSpec("p", (2**60,), ("R", "R")), (Replicate(), Replicate()), (1,)),
    ],
)
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


def test_an_axis_that_is_not_the_parameters_is_not_summed_over() -> None:
    spec = ParameterSpec("p", (3,), ("R", "-", "P"))
    assert contributing_ranks(CUBE, spec, 6) == (2, 3, 6, 7)


class Looks:
    """Reports how its parameters look, instead of reducing them."""

    seen: list[object]

    def __init__(self, param_groups: list, mb: float, count: int) -> None:
        (self.listed,) = param_groups

    def bind(self) -> None:
        first, second, again = self.listed
        Looks.seen.append(
            (first.device_mesh.mesh_dim_names, second.device_mesh.ndim, again is first)
        )

    def wait(self) -> None:
        Looks.seen.append(self.listed[1].grad.placements)

    def zero_grad(self) -> None: ...
    def unbind(self) -> None: ...


def test_a_subject_sees_sub_meshes_partial_gradients_and_repeated_parameters() -> None:
    first = ParameterSpec("p0", (3,), ("R", "-", "R"), num_listed=2)
    second = ParameterSpec("p1", (3,), ("P", "R", "P"))
    scenario = Scenario(MeshSpec((1, 1, 1), CUBE.axis_names), (first, second), (1,), 64)
    Looks.seen = []
    subject = resolve(Looks)
    run = SimBackend().run(scenario, subject)
    assert run.fault is None
    kinds, placements = Looks.seen
    assert kinds == (("dp", "ep"), 3, True)
    assert [isinstance(p, Partial) for p in placements] == [True, False, True]
    assert {v.cause for v in check(scenario, run, subject.capabilities)} <= {
        "gradient_left"
    }
