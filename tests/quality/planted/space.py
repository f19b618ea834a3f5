"""Planted defects that show on some meshes, placements, shapes, dtypes and layouts only."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard

from studies.redteam.wrong.meshes import ReducesPerGroup
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.layout import on_mesh
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import OWN_MESH, MeshSpec, ParameterSpec
from syncverify.subjects.bugbank.bases.main_grads import MainGrads
from syncverify.subjects.bugbank.bases.placements import Groups, local, reduce_groups
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.bugbank.layout import (
    CountsEachListing,
    HandsBackInTheOrderOfStorage,
)
from syncverify.subjects.bugbank.numerics.sums import (
    AccumulatesInParameterDtype,
    RedistributesWhatArrives,
)
from tests.quality.planted.planted import (
    EXCLUSIVE,
    LIVE,
    LOCAL,
    MATCH,
    UNBIND,
    UNREDUCED,
    VALUE,
    Identity,
    Planted,
    each_parameter,
    plant,
    planted,
    training,
)
from tests.quality.planted.several_meshes import BucketsByShape, GroupsByName
from tests.quality.planted.unequal_replicas import BroadcastsOneParameter
from tests.quality.planted.updates import StartsInItsHook


class LooksAtTwoAxes(MainGrads):
    """Knows the first two axes of a mesh, for data and tensor parallelism, and no others."""

    def groups_of(self, parameter: nn.Parameter) -> Groups:
        if not isinstance(parameter, DTensor):
            return ()
        mesh = parameter.device_mesh
        known = [mesh.get_group(axis) for axis in range(mesh.ndim)[:2]]
        return tuple(group for group in reduce_groups(parameter) if group in known)


class ComputesItsRow(PlainGrads):
    """Computes the ranks of the last axis from its size, as if ranks were in order."""

    capabilities = Capabilities(varying_accumulations=True)

    def bind(self) -> None:
        self.rows: dict[tuple[int, ...], dist.ProcessGroup] = {}
        num_ranks = dist.get_world_size()
        for size in filter(lambda n: num_ranks % n == 0, range(2, num_ranks + 1)):
            for row in torch.arange(num_ranks).view(-1, size).tolist():
                group = dist.new_group(row)
                if dist.get_rank() in row:
                    self.rows[(size,)] = group

    def reduce(self, gradient: torch.Tensor) -> None:
        if not isinstance(gradient, DTensor):
            return
        mesh = gradient.device_mesh
        for axis, placement in enumerate(gradient.placements):
            if placement.is_replicate() and mesh.size(axis) > 1:
                is_last = axis == mesh.ndim - 1 and mesh.size() == dist.get_world_size()
                row = self.rows[(mesh.size(axis),)] if is_last else mesh.get_group(axis)
                dist.all_reduce(local(gradient), group=row)


class AsksForAxesByName(MainGrads):
    """Finds axes by their names, and so finds none on a mesh without names."""

    def groups_of(self, parameter: nn.Parameter) -> Groups:
        if isinstance(parameter, DTensor) and parameter.device_mesh.mesh_dim_names:
            return reduce_groups(parameter)
        return ()


class TakesReplicasForTheWorld(MainGrads):
    """Sums a parameter that is replicated over its whole mesh over the default group."""

    def groups_of(self, parameter: nn.Parameter) -> Groups:
        groups = reduce_groups(parameter)
        is_replica = isinstance(parameter, DTensor) and all(
            isinstance(placement, Replicate) for placement in parameter.placements
        )
        return (dist.group.WORLD,) if groups and is_replica else groups


class KnowsOneKindOfShard(MainGrads):
    """Takes every placement but `Shard` for a replica; a strided shard is another class."""

    def groups_of(self, parameter: nn.Parameter) -> Groups:
        if not isinstance(parameter, DTensor):
            return ()
        mesh = parameter.device_mesh
        return tuple(
            mesh.get_group(axis)
            for axis, placement in enumerate(parameter.placements)
            if not isinstance(placement, Shard) and mesh.size(axis) > 1
        )


class LeavesConvolutionsOut(MainGrads):
    """Has kernels for up to three dims, and does not reduce tensors with more."""

    def groups_of(self, parameter: nn.Parameter) -> Groups:
        return reduce_groups(parameter) if parameter.dim() < 4 else ()


@planted(
    UNREDUCED,
    twin=MainGrads,
    scenarios=(training(shape=(2, 3, 2, 2, 2)),),
    elsewhere=(training(shape=(2, 3, 2, 2)),),
)
class LeavesVolumesOut(MainGrads):
    """Has kernels for up to four dims, and does not reduce tensors with more."""

    def groups_of(self, parameter: nn.Parameter) -> Groups:
        return reduce_groups(parameter) if parameter.dim() < 5 else ()


class CountsHowManyFit(MainGrads):
    """Divides by the size of a parameter, which may be 0."""

    def bind(self) -> None:
        self.counts = [self.cap_bytes / p.numel() for p in self.trainable()]
        super().bind()


class SumsInFloat32(MainGrads):
    """Takes float32 for the widest dtype, and sums float64 in it."""

    def dtype_of(self, parameter: nn.Parameter) -> torch.dtype:
        wide = parameter.grad_dtype is torch.float64
        return torch.float32 if wide else parameter.grad_dtype


class WritesChannelsLast(MainGrads):
    """Writes channels-last gradients in that order, and hands them back row by row."""

    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        part = local(parameter)
        if part.dim() == 4 and part.is_contiguous(memory_format=torch.channels_last):
            batch, channels, height, width = part.shape
            slot = slot.view(batch, height, width, channels).permute(0, 3, 1, 2)
        super().on_accumulated(slot, parameter)


def two_named_axes(scenario: Scenario) -> Scenario:
    first, *others = scenario.mesh.shape
    mesh = MeshSpec((first, torch.Size(others).numel()), ("dp", "tp"))
    parameters = tuple(
        replace(spec, placements=spec.placements and spec.placements[:2])
        for spec in scenario.parameters
    )
    return replace(scenario, mesh=mesh, parameters=parameters)


def named(scenario: Scenario) -> Scenario:
    names = ("dp", "tp", "ep")[: len(scenario.mesh.shape)]
    return replace(scenario, mesh=MeshSpec(scenario.mesh.shape, names))


def row_major(scenario: Scenario) -> Scenario:
    return replace(scenario, mesh=replace(scenario.mesh, order="row_major"))


def equal_replicas(scenario: Scenario) -> Scenario:
    return replace(scenario, replicas="equal")


def updated_after_wait(scenario: Scenario) -> Scenario:
    return replace(scenario, update="after_wait")


def placed(old: str, new: str) -> Callable[[Scenario], Scenario]:
    """Exchange the prefix of placement codes."""

    def change(spec: ParameterSpec) -> ParameterSpec:
        codes = spec.placements and tuple(c.replace(old, new) for c in spec.placements)
        return replace(spec, placements=codes)

    return each_parameter(change)


def of_dims(count: int) -> Callable[[Scenario], Scenario]:
    """Leave out the last dims of each parameter; the last one that stays is sharded instead."""

    def change(spec: ParameterSpec) -> ParameterSpec:
        old, new = f"S{count}", f"S{count - 1}"
        codes = spec.placements and tuple(c.replace(old, new) for c in spec.placements)
        return replace(spec, global_shape=spec.global_shape[:count], placements=codes)

    return each_parameter(change)


def filled(spec: ParameterSpec) -> ParameterSpec:
    return replace(spec, global_shape=tuple(n or 2 for n in spec.global_shape))


def narrow(spec: ParameterSpec) -> ParameterSpec:
    dtypes = {"float64": "float32", None: None}
    return replace(
        spec,
        dtype=dtypes.get(spec.dtype, spec.dtype),
        grad_dtype=dtypes.get(spec.grad_dtype, spec.grad_dtype),
    )


def setting(**fields: Any) -> Callable[[Scenario], Scenario]:
    return each_parameter(lambda spec: replace(spec, **fields))


def on_own_mesh(scenario: Scenario) -> Scenario:
    return each_parameter(lambda spec: on_mesh(scenario.mesh, spec, OWN_MESH))(scenario)


UNSENT = "not_reduced"
FOREIGN = "foreign_contribution"
ROW_BY_ROW = setting(memory_format="contiguous")


def of_space(
    subject: type[Any],
    identity: Identity,
    feature: str,
    needs: frozenset[str] = frozenset(),
    **fields: Any,
) -> Planted:
    """Plant a defect that a feature shows, for a contract of plain steps and the feature."""
    # Features promised right are drawn more often than features that may be refused.
    contract = Capabilities(varying_accumulations=True, right=needs | {feature})
    return plant(subject, identity, feature, needs=needs, contract=contract, **fields)


SPACE = [
    of_space(LooksAtTwoAxes, (VALUE, UNSENT), "mesh=3 axes", without=two_named_axes),
    of_space(ComputesItsRow, (VALUE, FOREIGN), "mesh=permuted", without=row_major),
    of_space(AsksForAxesByName, (VALUE, UNSENT), "mesh=unnamed", without=named),
    of_space(TakesReplicasForTheWorld, (VALUE, FOREIGN), "placement=sub_mesh", without=placed("-", "R"), examples=300),
    of_space(KnowsOneKindOfShard, (LOCAL, FOREIGN), "placement=strided", without=placed("_S", "S")),
    of_space(RedistributesWhatArrives, (VALUE, "reduced_twice"), "placement=partial", without=placed("P", "R")),
    of_space(LeavesConvolutionsOut, (VALUE, UNSENT), "shape=4 dims", without=of_dims(3)),
    of_space(CountsHowManyFit, (LIVE, "raised_ZeroDivisionError"), "shape=empty", without=each_parameter(filled)),
    of_space(SumsInFloat32, (VALUE, "rounded"), "dtype=float64", without=each_parameter(narrow)),
    of_space(AccumulatesInParameterDtype, (VALUE, "rounded"), "dtype=own gradient dtype", without=setting(grad_dtype=None)),
    of_space(CountsEachListing, (VALUE, UNSENT), "listed=twice", without=setting(num_listed=1)),
    of_space(ReducesPerGroup, (VALUE, "reduced_twice"), "listed=in two groups", without=setting(also_in_next_group=False)),
    of_space(HandsBackInTheOrderOfStorage, (VALUE, "partly_wrong"), "memory_format=transposed", without=ROW_BY_ROW),
    of_space(WritesChannelsLast, (VALUE, "partly_wrong"), "memory_format=channels_last", without=ROW_BY_ROW, needs=frozenset({"shape=4 dims"}), examples=400),
    of_space(StartsInItsHook, (EXCLUSIVE, "touched_in_flight"), "update=in_backward", without=updated_after_wait),
    of_space(BucketsByShape, (MATCH, "groups_mixed"), "on_mesh=transposed", without=on_own_mesh, examples=400),
    of_space(GroupsByName, (VALUE, "reduced_twice"), "on_mesh=reshaped", without=on_own_mesh, examples=400),
    of_space(BroadcastsOneParameter, (UNBIND, "replicas_left_unequal"), "replicas=unequal", without=equal_replicas),
]  # fmt: skip
