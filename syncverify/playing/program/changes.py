"""Changes of parameters that a training program makes while a subject manages them.

No other module of the harness calls the private `Module._apply`. `Module.to()` calls it with
a function for each parameter and its gradient. On one device `to()` itself moves nothing, so
`move` calls `_apply` with a copy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import nn

from syncverify.playing.program.training_program import Change
from syncverify.scenario import step_plan
from syncverify.scenario.scenario import Scenario


def change_parameters(
    scenario: Scenario, change: Change, parameters: Mapping[str, nn.Parameter]
) -> None:
    """Freeze, train, cast or move a rank's parameters."""
    match change.kind:
        case "cast":
            nn.ParameterList(parameters.values()).double()
        case "move":
            _move(parameters.values())
        case "freeze":
            freeze(scenario, change.step, parameters)


def freeze(
    scenario: Scenario, step: int, parameters: Mapping[str, nn.Parameter]
) -> None:
    """Freeze the parameters that a step does not train, and train all others."""
    for spec in scenario.parameters:
        is_frozen = step_plan.is_frozen(scenario, spec, step)
        parameters[spec.name].requires_grad_(not is_frozen)


def _move(parameters: Collection[nn.Parameter]) -> None:
    """Copy parameters and gradients; the dtypes that gradients may have stay."""
    # `_apply` keeps `grad_dtype` of plain tensors and loses that of DTensors.
    dtypes = [parameter.grad_dtype for parameter in parameters]
    nn.ParameterList(parameters)._apply(torch.clone)  # noqa: SLF001
    for parameter, dtype in zip(parameters, dtypes, strict=True):
        if parameter.grad_dtype != dtype:
            gradient, parameter.grad = parameter.grad, None
            parameter.grad_dtype = dtype
            parameter.grad = gradient
