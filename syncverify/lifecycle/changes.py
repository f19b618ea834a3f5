"""What a training program does to its parameters while a subject manages them.

The only module of the harness that calls `Module._apply`, which is what `Module.to()` and
its like do to each parameter and its gradient; on one device they move nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from syncverify import agenda
from syncverify.scenario import Scenario

CHANGES = ("freeze", "cast", "move")


def change_parameters(
    scenario: Scenario, step: int, parameters: Mapping[str, nn.Parameter]
) -> None:
    """Freeze, cast or move parameters, if that is special about a step.

    Args:
        scenario: What is played.
        step: The step that is about to begin.
        parameters: Of one rank, by name.
    """
    match scenario.event(step):
        case "freeze":
            _freeze(scenario, step, parameters)
        case "cast":
            nn.ParameterList(parameters.values()).double()
        case "move":
            nn.ParameterList(parameters.values())._apply(torch.clone)  # noqa: SLF001


def _freeze(
    scenario: Scenario, step: int, parameters: Mapping[str, nn.Parameter]
) -> None:
    for spec in scenario.parameters:
        if agenda.is_frozen(scenario, spec, step):
            parameters[spec.name].requires_grad_(False)
