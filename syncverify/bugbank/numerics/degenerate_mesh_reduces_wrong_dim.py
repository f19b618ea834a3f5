"""Reported in verl-project/verl#7493."""

from __future__ import annotations

from torch import nn
from torch.distributed.tensor import DTensor
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import MainGrads
from syncverify.bugbank.bases.placements import Groups
from syncverify.bugbank.entry import Entry


class ReducesOverAxisOfOne(MainGrads):
    """Where a mesh has an axis of one rank, that one is reduced over, and no other."""

    @override
    def groups_of(self, parameter: nn.Parameter) -> Groups:
        if isinstance(parameter, DTensor) and 1 in parameter.device_mesh.shape:
            mesh = parameter.device_mesh
            return (mesh.get_group(mesh.shape.index(1)),)
        return super().groups_of(parameter)


ENTRY = Entry(
    subject=ReducesOverAxisOfOne,
    twin=MainGrads,
    source="verl-project/verl#7493",
    trigger="a mesh of (2, 1)",
    silent=True,
    property="gradient_equals_reference",
    cause="not_reduced",
)
