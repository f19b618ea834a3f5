"""Buckets of parameters on several meshes, right, and with a mesh mistaken for another one."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.layout import on_mesh
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.bugbank.bases.placements import (
    local_grad,
    reduce_groups,
    slices,
)
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.bugbank.entry import Marked
from tests.quality.planted.planted import built_in, planted, right

LINE = MeshSpec((4,), ("dp",))
GRID = MeshSpec((2, 2), ("dp", "tp"))
CUBE = MeshSpec((2, 1, 2), ("dp", "tp", "ep"))


def scenario(mesh: MeshSpec, word: str, codes: str = "", **fields: object) -> Scenario:
    """Make a scenario with one parameter on its mesh and one on another mesh."""
    placements = tuple(codes.split()) or ("R",) * len(mesh.shape)
    dense = ParameterSpec("dense", (4,), placements)
    expert = on_mesh(mesh, replace(dense, name="expert"), word)
    changed = replace(expert, **fields)  # type: ignore[arg-type]
    return Scenario(mesh, (dense, changed), (2, 1), 1024)


TRANSPOSED = scenario(GRID, "transposed", "R S0")
RESHAPED = scenario(GRID, "reshaped", "R S0")
SPLIT = scenario(LINE, "reshaped")
SUB_MESHES = Scenario(
    GRID,
    (ParameterSpec("a", (4,), ("R", "-")), ParameterSpec("b", (4,), ("-", "R"))),
    (1,),
    1024,
)
SLICE = replace(
    SPLIT,
    parameters=(
        SPLIT.parameters[0],
        replace(SPLIT.parameters[1], placements=("R", "-")),
    ),
)
PARTIAL = scenario(GRID, "transposed", "P R")
SHOWN = [
    TRANSPOSED,
    RESHAPED,
    SPLIT,
    SLICE,
    scenario(CUBE, "transposed", "R S0 R"),
    scenario(replace(GRID, axis_names=(), order="permuted"), "transposed", "R S0"),
    scenario(replace(GRID, order="permuted"), "reshaped", "S0 R"),
    scenario(GRID, "transposed", "R S0", group=1),
]


def apart(shown: Scenario) -> Scenario:
    """Put the second parameter into another group."""
    first, second = shown.parameters
    return replace(shown, parameters=(first, replace(second, group=1)))


def shown_by(*scenarios: Scenario) -> Callable[[Marked], Marked]:
    """Mark a class as one that takes a mesh for another one; the first parameter alone is right."""
    alone = tuple(replace(each, parameters=each.parameters[:1]) for each in scenarios)
    return planted((), scenarios=scenarios, elsewhere=alone)


def replicated(parameter: nn.Parameter) -> list[tuple[int, DeviceMesh]]:
    """List the axes over which a parameter is replicated, each with its mesh."""
    if not isinstance(parameter, DTensor):
        return []
    codes = enumerate(parameter.placements)
    return [(axis, parameter.device_mesh) for axis, p in codes if p.is_replicate()]


@right(*SHOWN, *map(apart, (TRANSPOSED, SUB_MESHES, SLICE, RESHAPED, SPLIT)))
class BucketsByMesh(PlainGrads):
    """Sums gradients in buckets of one mesh, one list of placements and one dtype."""

    capabilities = Capabilities(
        varying_accumulations=True,
        features=frozenset({"on_mesh", "placement=sub_mesh"}),
    )

    def key(self, parameter: nn.Parameter) -> Hashable:
        """Return the key that parameters of one bucket share."""
        dtype = local_grad(parameter).dtype
        if not isinstance(parameter, DTensor):
            return dtype, parameter
        return dtype, parameter.placements, self.mesh_key(parameter.device_mesh)

    def mesh_key(self, mesh: DeviceMesh) -> Hashable:
        """Return the key that meshes of one bucket share."""
        return mesh

    def groups(self, parameter: nn.Parameter) -> Sequence[dist.ProcessGroup]:
        """Return the groups over which the bucket of a parameter is summed."""
        return reduce_groups(parameter)

    def wait(self) -> None:
        buckets = defaultdict[Hashable, list[nn.Parameter]](list)
        for parameter in self.parameters:
            if parameter.grad is not None:
                buckets[self.key(parameter)].append(parameter)
        for listed in buckets.values():
            flat = torch.cat([local_grad(each).reshape(-1) for each in listed])
            for group in self.groups(listed[0]):
                dist.all_reduce(flat, group=group)
            for parameter, part in slices(flat, listed):
                local_grad(parameter).copy_(part)

    def first_mesh(self) -> DeviceMesh:
        """Return the mesh of the first parameter that has one."""
        on_meshes = (p.device_mesh for p in self.parameters if isinstance(p, DTensor))
        return next(on_meshes)


@shown_by(TRANSPOSED, SUB_MESHES, SLICE)
class BucketsWithoutMesh(BucketsByMesh):
    """A bucket has parameters of all meshes with equal placements."""

    def mesh_key(self, mesh: DeviceMesh) -> Hashable:
        return None


@shown_by(TRANSPOSED)
class BucketsByShape(BucketsByMesh):
    """A bucket has parameters of all meshes with equal shapes."""

    def mesh_key(self, mesh: DeviceMesh) -> Hashable:
        return tuple(mesh.shape)


@shown_by(RESHAPED, SPLIT)
class GroupsByName(BucketsByMesh):
    """Takes the group at an axis of the first mesh, by the name of the axis."""

    def groups(self, parameter: nn.Parameter) -> Sequence[dist.ProcessGroup]:
        found = list[dist.ProcessGroup]()
        for axis, mesh in replicated(parameter):
            names, known = mesh.mesh_dim_names, self.first_mesh()
            is_known = names and names[axis] in (known.mesh_dim_names or ())
            found.append(
                known.get_group(names[axis])
                if names and is_known
                else mesh.get_group(axis)
            )
        return found


OTHERS = built_in("synchronizer", scenarios=(*SHOWN, PARTIAL))
