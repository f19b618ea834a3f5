"""Turn a scenario's parameters into torch parameters on one rank, and read them back."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from syncverify.contributions import contribution
from syncverify.distribution import in_format, local_in_graph, wrap_local
from syncverify.layout import local_shape
from syncverify.scenario import ParameterSpec, Scenario


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
        """List the parameters as the subject's factory takes them.

        What is listed more than once comes again at the end, as the head of a model does
        that shares its weight with the first layer.

        Returns:
            One list a group.
        """
        return [
            [
                self.parameters[spec.name]
                for again in range(max(spec.num_listed for spec in group))
                for spec in group
                if again < spec.num_listed
            ]
            for group in self.scenario.groups
        ]

    def loss(self, *, step: int, micro_batch: int) -> torch.Tensor:
        """Compute a loss whose gradients are this micro-batch's contributions.

        The gradient of `(parameter * constant).sum()` is the constant itself, exactly.

        Returns:
            A scalar, in float32.
        """
        terms = []
        for spec in self.scenario.parameters:
            local = local_in_graph(self.parameters[spec.name], spec)
            constant = contribution(
                self.scenario, spec, rank=self.rank, step=step, micro_batch=micro_batch
            )
            product = local * constant.to(dtype=local.dtype, device=local.device)
            terms.append(product.to(torch.float32).sum())
        # Of all sums this one asks the least of a backward pass: no operator at all.
        return functools.reduce(torch.add, terms)

    def local_gradients(self) -> dict[str, torch.Tensor]:
        """Return the local gradients that exist now, uncopied, by parameter name."""
        gradients = {name: local_gradient(p) for name, p in self.parameters.items()}
        return {
            name: gradient
            for name, gradient in gradients.items()
            if gradient is not None
        }


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
    data = in_format(values.to(dtype=dtype, device=device), spec.memory_format)
    if mesh is not None and spec.placements is not None:
        data = wrap_local(data, mesh, scenario.mesh, spec)
    parameter = nn.Parameter(data, requires_grad=spec.requires_grad)
    if spec.grad_dtype is not None:
        parameter.grad_dtype = getattr(torch, spec.grad_dtype)
    return parameter


def local_gradient(parameter: nn.Parameter) -> torch.Tensor | None:
    """Return this rank's part of a gradient, uncopied, or None where there is none."""
    return None if parameter.grad is None else local_part(parameter.grad)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor, detached and uncopied."""
    with torch.no_grad():
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return local.detach()
