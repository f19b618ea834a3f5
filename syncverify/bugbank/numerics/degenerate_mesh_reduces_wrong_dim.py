"""Where a mesh has an axis of one rank, that one is reduced over, and no other.

Reported in verl-project/verl#7493.
"""

from torch import nn
from torch.distributed.tensor import DTensor
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import MainGrads
from syncverify.bugbank.bases.placements import Groups
from syncverify.bugbank.entry import reported


@reported(
    "verl-project/verl#7493",
    trigger="a mesh of (2, 1)",
    violates="gradient_equals_reference",
    cause="not_reduced",
)
class ReducesOverAxisOfOne(MainGrads):
    """Where a mesh has an axis of one rank, that one is reduced over, and no other."""

    @override
    def groups_of(self, parameter: nn.Parameter) -> Groups:
        if isinstance(parameter, DTensor) and 1 in parameter.device_mesh.shape:
            mesh = parameter.device_mesh
            return (mesh.get_group(mesh.shape.index(1)),)
        return super().groups_of(parameter)
