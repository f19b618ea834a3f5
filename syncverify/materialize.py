"""Turn a scenario's parameters into torch parameters on one rank, and read them back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from syncverify import agenda
from syncverify.contributions import contribution
from syncverify.distribution import in_format, local_in_graph, wrap_local
from syncverify.graphs.losses import AsRank, Losses, total
from syncverify.graphs.products import dot
from syncverify.graphs.uses import USES
from syncverify.layout import local_shape
from syncverify.lifecycle.planned_error import failing_term, idle_term
from syncverify.modules.model import initial_value
from syncverify.modules.named import module_loss, require_own_parameters
from syncverify.scenario import ParameterSpec, Scenario
from syncverify.vocabulary import PLAIN

Using = Callable[[str], AbstractContextManager[object]]
_NOBODY = ""  # the term of a loss that is of no parameter, or of all


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

    def loss(
        self,
        *,
        step: int,
        micro_batch: int,
        using: Using = nullcontext,
        fails: bool = False,
    ) -> torch.Tensor:
        """Compute a loss whose gradients are this micro-batch's contributions, exactly.

        Those of a module's scenario are its own, and round.

        Args:
            step: Optimizer step.
            micro_batch: Micro-batch of the step.
            using: Entered with a parameter's name while its part is computed.
            fails: Whether the backward is to fail when it is half done.

        Returns:
            A scalar, in float32.
        """
        return total(self._terms(step, micro_batch, using, fails=fails).values())

    def losses(
        self,
        *,
        step: int,
        micro_batch: int,
        using: Using = nullcontext,
        fails: bool = False,
        as_rank: AsRank = nullcontext,
    ) -> Losses:
        """Compute the terms of that loss, for whoever runs backward in another way.

        Args:
            step: Optimizer step.
            micro_batch: Micro-batch of the step.
            using: Entered with a parameter's name while its part is computed.
            fails: Whether the backward is to fail when it is half done.
            as_rank: Makes another thread one of this rank's.

        Returns:
            The terms that need gradients.
        """
        terms = {
            name: term
            for name, term in self._terms(step, micro_batch, using, fails=fails).items()
            if term.requires_grad
        }
        own = {name: self.parameters[name] for name in terms if name in self.parameters}
        return Losses(terms, own, as_rank)

    def _terms(
        self, step: int, micro_batch: int, using: Using, *, fails: bool
    ) -> dict[str, torch.Tensor]:
        """Compute the terms of a loss, by the name of the parameter in them, if one is."""
        if self.scenario.module != PLAIN:
            return {_NOBODY: self._module_loss(step=step, micro_batch=micro_batch)}
        device = next(iter(self.parameters.values())).device
        listed = agenda.terms(self.scenario, self.rank, step, micro_batch)
        terms: dict[str, torch.Tensor] = {}
        for position, spec in enumerate(listed):
            if fails and position == len(listed) // 2:
                terms[_NOBODY] = failing_term(device)
            with using(spec.name):
                terms[spec.name] = self._term(spec, step, micro_batch)
        if not any(term.requires_grad for term in terms.values()):
            terms[_NOBODY] = failing_term(device) if fails else idle_term(device)
        return terms

    def _term(self, spec: ParameterSpec, step: int, micro_batch: int) -> torch.Tensor:
        """Compute a term in which the parameter's gradient is a constant, exactly."""
        local = local_in_graph(self.parameters[spec.name], spec)
        constant = contribution(
            self.scenario, spec, rank=self.rank, step=step, micro_batch=micro_batch
        )
        use = USES[spec.use] if local.requires_grad else dot
        return use(local, constant.to(dtype=local.dtype, device=local.device))

    def drop_gradients(self) -> None:
        """Set every gradient to None."""
        for parameter in self.parameters.values():
            parameter.grad = None

    def _module_loss(self, *, step: int, micro_batch: int) -> torch.Tensor:
        # Once a parameter, plain or not: uses of a tied one add up in the dtype of the
        # parameter, before the engine turns the sum into the gradient's dtype.
        parts = {
            name: p.to_local() if isinstance(p, DTensor) else p.view_as(p)
            for name, p in self.parameters.items()
        }
        return module_loss(
            self.scenario, parts, rank=self.rank, step=step, micro_batch=micro_batch
        )

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
    if scenario.module != PLAIN:
        require_own_parameters(scenario)
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
    if scenario.module != PLAIN:
        values = initial_value(scenario.mesh, spec, rank)
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
