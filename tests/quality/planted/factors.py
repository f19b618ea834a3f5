"""A declared divide factor holds on each group, also on one of one rank."""

import torch
from torch.distributed.tensor import DTensor

from syncverify.bugbank.bases.placements import local
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec
from tests.quality.planted.planted import LOCAL, planted, right, training

FACTOR = 4


def of(shape: tuple[int, ...], *placements: str) -> Scenario:
    """Return a step of one parameter on a mesh of this shape."""
    mesh = MeshSpec(shape, ("dp", "tp")[: len(shape)])
    placed = {"placements": placements}
    return training(mesh=mesh, accumulations=(2,), cap_bytes=64, parameter=placed)


ONE_RANK = (of((1,), "R"), of((2, 1), "S0", "R"))
SEVERAL = (of((2,), "R"), of((2, 2), "R", "R"), of((2, 2), "S0", "S0"))


@right(*ONE_RANK, *SEVERAL)
class Divides(PlainGrads):
    """Divides each sum by the declared factor."""

    capabilities = Capabilities(varying_accumulations=True, divide_factor=FACTOR)
    fewest_ranks = 1

    def reduce(self, gradient: torch.Tensor) -> None:
        super().reduce(gradient)
        if not isinstance(gradient, DTensor):
            return
        mesh = gradient.device_mesh
        sizes = [
            mesh.size(axis)
            for axis, placement in enumerate(gradient.placements)
            if placement.is_replicate()
        ]
        if sizes and max(sizes) >= self.fewest_ranks:
            local(gradient).div_(FACTOR)


@planted(
    (LOCAL, "scaled"),
    scenarios=ONE_RANK,
    elsewhere=SEVERAL,
    says=("divided by 1 or not at all, and the contract divides by 4",),
)
class DropsTheFactorOfOneRank(Divides):
    """Leaves a gradient as it is where no rank sends anything."""

    fewest_ranks = 2
