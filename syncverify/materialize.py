"""Turn a scenario's parameters into torch parameters on one rank, and read them back."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard

from syncverify.contributions import contribution
from syncverify.graphs.losses import AsRank, Losses, total
from syncverify.graphs.products import dot
from syncverify.graphs.uses import USES
from syncverify.layout import local_shape
from syncverify.scenario import REPLICATE, ParameterSpec, Scenario


@dataclass(frozen=True, slots=True)
class LocalModel:
    """The parameters of one rank, by name, in registration order.

    Attributes:
        scenario: Where they come from.
        rank: Global rank.
        parameters: DTensor or plain parameters.
    """

    scenario: Scenario
    rank: int
    parameters: Mapping[str, nn.Parameter]

    def param_groups(self) -> list[list[nn.Parameter]]:
        """List the parameters as the subject's factory takes them."""
        return [
            [self.parameters[spec.name] for spec in group]
            for group in self.scenario.groups
        ]

    def loss(self, *, step: int, micro_batch: int) -> torch.Tensor:
        """Compute a loss whose gradients are this micro-batch's contributions, exactly.

        Returns:
            A scalar, in float32.
        """
        return total(self._terms(step=step, micro_batch=micro_batch).values())

    def losses(
        self, *, step: int, micro_batch: int, as_rank: AsRank = nullcontext
    ) -> Losses:
        """Compute the terms of that loss, for whoever runs backward in another way.

        Args:
            step: Optimizer step, from 0.
            micro_batch: Micro-batch of that step, from 0.
            as_rank: Makes another thread one of this rank's.

        Returns:
            The terms that need gradients.
        """
        terms = {
            name: term
            for name, term in self._terms(step=step, micro_batch=micro_batch).items()
            if term.requires_grad
        }
        return Losses(terms, {name: self.parameters[name] for name in terms}, as_rank)

    def _terms(self, *, step: int, micro_batch: int) -> dict[str, torch.Tensor]:
        terms = {}
        for spec in self.scenario.parameters:
            parameter = self.parameters[spec.name]
            # to_local() labels the local gradient with the parameter's placements and
            # reduces nothing: just the state that a synchronizer has to complete.
            local = (
                parameter.to_local() if isinstance(parameter, DTensor) else parameter
            )
            constant = contribution(
                self.scenario, spec, rank=self.rank, step=step, micro_batch=micro_batch
            )
            use = USES[spec.use] if local.requires_grad else dot
            constant = constant.to(dtype=local.dtype, device=local.device)
            terms[spec.name] = use(local, constant)
        return terms

    def local_gradients(self) -> dict[str, torch.Tensor]:
        """Return the local gradients that exist now, uncopied, by parameter name."""
        gradients = {name: local_gradient(p) for name, p in self.parameters.items()}
        return {
            name: gradient
            for name, gradient in gradients.items()
            if gradient is not None
        }


def build_mesh(scenario: Scenario, device: torch.device) -> DeviceMesh:
    """Build the scenario's mesh over the ranks of the default process group."""
    return init_device_mesh(
        device.type, scenario.mesh.shape, mesh_dim_names=scenario.mesh.axis_names
    )


def build_model(
    scenario: Scenario, *, rank: int, device: torch.device, mesh: DeviceMesh | None
) -> LocalModel:
    """Make one rank's parameters.

    Args:
        scenario: What to make.
        rank: Global rank.
        device: Where the local parts live.
        mesh: The mesh of DTensor parameters; None makes every parameter a plain tensor
            of its local shape.

    Returns:
        The model. Replicated parameters have equal values on all ranks.
    """
    parameters = {
        spec.name: _build_parameter(scenario, spec, rank=rank, device=device, mesh=mesh)
        for spec in scenario.parameters
    }
    return LocalModel(scenario, rank, parameters)


def _build_parameter(
    scenario: Scenario,
    spec: ParameterSpec,
    *,
    rank: int,
    device: torch.device,
    mesh: DeviceMesh | None,
) -> nn.Parameter:
    shape = local_shape(scenario.mesh, spec, rank)
    dtype: torch.dtype = getattr(torch, spec.dtype)
    values = (torch.arange(torch.Size(shape).numel()) % 5 + 1).reshape(shape)
    data = values.to(dtype=dtype, device=device)
    if mesh is not None and spec.placements is not None:
        data = wrap_local(data, mesh, spec)
    parameter = nn.Parameter(data, requires_grad=spec.requires_grad)
    if spec.grad_dtype is not None:
        parameter.grad_dtype = getattr(torch, spec.grad_dtype)
    return parameter


def wrap_local(local: torch.Tensor, mesh: DeviceMesh, spec: ParameterSpec) -> DTensor:
    """Make a DTensor of this rank's part, without communication."""
    placements: list[Placement] = [
        Replicate() if code == REPLICATE else Shard(int(code[1:]))
        for code in spec.placements or ()
    ]
    return DTensor.from_local(
        local,
        mesh,
        placements,
        run_check=False,
        shape=torch.Size(spec.global_shape),
        stride=torch.empty(spec.global_shape, device="meta").stride(),
    )


def local_gradient(parameter: nn.Parameter) -> torch.Tensor | None:
    """Return this rank's part of a gradient, uncopied, or None where there is none."""
    return None if parameter.grad is None else local_part(parameter.grad)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor, detached and uncopied."""
    with torch.no_grad():
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return local.detach()
