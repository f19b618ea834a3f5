"""Distribution of a parameter over ranks and in memory, in torch's own types.

No other module of `syncverify` imports torch's private `_StridedShard`.
"""

import itertools

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from syncverify.scenario.layout import rank_at
from syncverify.scenario.specs import (
    ABSENT,
    PARTIAL,
    MeshSpec,
    ParameterSpec,
    Placements,
    sharded_dim,
    split_factor,
    strided_shard,
)


def build_mesh(spec: MeshSpec, device: torch.device) -> DeviceMesh:
    """Build a mesh over the ranks of the default process group, with process groups of its own."""
    names = spec.axis_names or None
    if spec.order != "row_major":
        return DeviceMesh(device.type, rank_tensor(spec), mesh_dim_names=names)
    return init_device_mesh(device.type, spec.shape, mesh_dim_names=names)


def rank_tensor(spec: MeshSpec) -> torch.Tensor:
    """Return the global ranks of a mesh in the mesh's shape, int32 as torch keeps them."""
    if spec.order == "row_major":  # a large mesh has tens of thousands
        return torch.arange(spec.num_ranks, dtype=torch.int).reshape(spec.shape)
    ranks = [rank_at(spec, e) for e in itertools.product(*map(range, spec.shape))]
    return torch.tensor(ranks, dtype=torch.int).reshape(spec.shape)


def wrap_local(
    local: torch.Tensor, mesh: DeviceMesh, whole: MeshSpec, spec: ParameterSpec
) -> DTensor:
    """Return a DTensor of this rank's part, made without communication.

    `mesh` holds all ranks, and `whole` is its spec: that of the parameter's mesh. The DTensor lies on the mesh axes that
    are not absent from the parameter's placements.
    """
    everything = torch.empty(spec.global_shape, device="meta")
    codes = spec.placements or ()
    placed = {
        n: _placement(whole, codes, n) for n, c in enumerate(codes) if c != ABSENT
    }
    if ABSENT in codes:  # the sub-mesh of the other axes
        mesh = mesh[tuple(whole.axis_names[axis] for axis in placed)]
    return DTensor.from_local(
        local,
        mesh,
        [*placed.values()],
        run_check=False,
        shape=torch.Size(spec.global_shape),
        stride=in_format(everything, spec.memory_format).stride(),
    )


def local_in_graph(parameter: torch.Tensor, spec: ParameterSpec) -> torch.Tensor:
    """Return this rank's part of a parameter, for use in a loss.

    The gradient gets the parameter's placements without a reduction. A synchronizer then
    has to complete it. A parameter with the placement `P` gets a gradient that is marked as
    `Partial` on that axis.
    """
    if not isinstance(parameter, DTensor):
        return parameter
    codes = [code for code in spec.placements or () if code != ABSENT]
    if PARTIAL not in codes:
        return parameter.to_local()
    arriving = [
        Partial() if code == PARTIAL else placement
        for code, placement in zip(codes, parameter.placements, strict=True)
    ]
    return parameter.to_local(grad_placements=arriving)


def in_format(tensor: torch.Tensor, memory_format: str) -> torch.Tensor:
    """Return a contiguous tensor in a memory format of the topic `memory_format`."""
    if tensor.numel() == 0:  # there is nothing to lay out, and torch's strides differ
        return tensor
    if memory_format == "transposed":
        return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
    if memory_format == "channels_last":
        # Here, because scripts take the text of this function alone.
        by_dims = {4: torch.channels_last, 5: torch.channels_last_3d}
        return tensor.contiguous(memory_format=by_dims[tensor.dim()])
    return tensor


def _placement(mesh: MeshSpec, placements: Placements, axis: int) -> Placement:
    dim = sharded_dim(placements[axis])
    if dim is None:
        return Replicate()
    if placements[axis] != strided_shard(dim):
        return Shard(dim)
    return _StridedShard(dim, split_factor=split_factor(mesh, placements, axis))
