"""Synchronizers with right numbers in `.grad`, and with a form that plain torch does not give."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from studies.redteam.wrong.metadata import CallsShardsReplicas, RequiresGrad
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.bugbank.bases.main_grads import MainGrads
from syncverify.subjects.bugbank.bases.placements import local
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from tests.quality.planted.planted import VALUE, plant, planted, right, training

FORM = "gradient_has_form_of_parameter"
SCENARIO = Scenario(
    MeshSpec((2,), ("dp",)),
    (
        ParameterSpec("w", (2, 3), ("R",)),
        ParameterSpec("sharded", (4,), ("S0",)),
        ParameterSpec("local", (3,), None),
    ),
    (1,),
    2**20,
)
SHOWN = {"scenarios": (SCENARIO,), "is_alone": True}


@right(SCENARIO)
class Reforms(MainGrads):
    """Correct: assigns each reduced gradient once more, in the form of its parameter."""

    def wait(self) -> None:
        super().wait()
        for parameter in self.moved:
            parameter.grad = self.formed(parameter, local(parameter.grad))

    def formed(self, parameter: nn.Parameter, summed: torch.Tensor) -> torch.Tensor:
        if not isinstance(parameter, DTensor):
            return summed
        return DTensor.from_local(
            summed,
            parameter.device_mesh,
            parameter.placements,
            shape=parameter.shape,
            stride=parameter.stride(),
        )


@planted((FORM, "wrong_type"), **SHOWN)
class AssignsLocalPart(Reforms):
    """The gradient of a replicated DTensor is a plain tensor."""

    def formed(self, parameter: nn.Parameter, summed: torch.Tensor) -> torch.Tensor:
        if summed.shape == parameter.shape:
            return summed
        return super().formed(parameter, summed)


@planted((FORM, "wrong_mesh"), **SHOWN)
class AssignsOnOwnMesh(Reforms):
    """The gradient lies on a mesh that the synchronizer made of the same ranks."""

    def formed(self, parameter: nn.Parameter, summed: torch.Tensor) -> torch.Tensor:
        formed = super().formed(parameter, summed)
        if not isinstance(formed, DTensor):
            return formed
        mesh = formed.device_mesh
        own = DeviceMesh(mesh.device_type, mesh.mesh, mesh_dim_names=("own",))
        return DTensor.from_local(
            summed, own, formed.placements, shape=formed.shape, stride=formed.stride()
        )


@planted((FORM, "wrong_strides"), **SHOWN)
class Interleaves(Reforms):
    """Every other element of the buffer belongs to another gradient."""

    def formed(self, parameter: nn.Parameter, summed: torch.Tensor) -> torch.Tensor:
        apart = torch.stack([summed, torch.zeros_like(summed)], dim=-1)[..., 0]
        return super().formed(parameter, apart)


@planted((FORM, "inference_tensor"), **SHOWN)
class HandsOutInferenceTensors(Reforms):
    """`wait()` runs in inference mode, so that no optimizer may write its gradients."""

    def wait(self) -> None:
        with torch.inference_mode():
            super().wait()

    def formed(self, parameter: nn.Parameter, summed: torch.Tensor) -> torch.Tensor:
        return super().formed(parameter, summed.clone())


OTHERS = [
    plant(CallsShardsReplicas, (FORM, "wrong_placements"), **SHOWN),
    plant(RequiresGrad, (FORM, "keeps_graph"), **SHOWN),
]


# Collectives move memory as it lies: a gradient that is not row-major has to be copied first.


def in_format(memory_format: str) -> Scenario:
    return training(shape=(2, 3, 2, 2), parameter={"memory_format": memory_format})


OUT_OF_ORDER = (in_format("transposed"), in_format("channels_last"))


@planted((VALUE,), scenarios=OUT_OF_ORDER, elsewhere=(in_format("contiguous"),))
class GathersAsItLies(PlainGrads):
    """Sums what it gathered, by the shape of the gradient."""

    def reduce(self, gradient: torch.Tensor) -> None:
        assert isinstance(gradient, DTensor)
        local = gradient.to_local().detach()
        group = gradient.device_mesh.get_group(0)
        parts = local.new_empty(group.size(), *local.shape)
        dist.all_gather_single(parts, self.sent(local), group=group)
        local.copy_(parts.sum(0))

    def sent(self, local: torch.Tensor) -> torch.Tensor:
        return local


@right(*OUT_OF_ORDER)
class GathersRows(GathersAsItLies):
    """Sends rows."""

    def sent(self, local: torch.Tensor) -> torch.Tensor:
        return local.contiguous()
