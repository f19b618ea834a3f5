"""What a training program writes: parameters while a subject manages them, and gradients.

No other module of the harness calls the private `Module._apply`. `Module.to()` calls it with
a function for each parameter and its gradient. On one device `to()` itself moves nothing, so
`move` calls `_apply` with a copy.

The optimizer works in place and on the caller's stream, like any optimizer: between `wait()` and
`zero_grad()` it scales the gradients, as clipping does, and then updates the parameters. Losses
are linear in the parameters, so that new values change no gradient; those of real modules are not,
and are written unchanged.
"""

from collections.abc import Collection, Mapping

import torch
from torch import nn

from syncverify.playing.program.training_program import Change, Replace
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


class ReplacedGradients:
    """Replaces the gradients of parameters, and holds the old and the new tensors.

    Their memory is of one stream's pool, and work of other streams reads it: the optimizer on a
    side stream, and the next accumulation, which may free it. So the training program holds it
    until all streams have met.
    """

    def __init__(self, parameters: Collection[nn.Parameter]) -> None:
        self._parameters = parameters
        self._held: list[object] = []

    @torch.no_grad()
    def replace(self, action: Replace) -> None:
        """Put products in the place of gradients, as `p.grad = p.grad * factor` does."""
        for parameter in [*self._parameters][action.first :: action.every]:
            if (gradient := parameter.grad) is not None:
                parameter.grad = gradient * action.factor
                self._held += [gradient, parameter.grad]

    def let_go(self) -> None:
        """Drop the tensors: the streams have met."""
        self._held.clear()


# A power of two: exact, and no number of ranks or accumulations that a mean divides by.
GRADIENT_SCALE = 1 / 16
_UPDATE = 1


@torch.no_grad()
def update(
    parameters: Collection[torch.Tensor],
    gradients: Collection[torch.Tensor],
    *,
    keeps_values: bool,
) -> None:
    """Scale the local parts of gradients in place, and update local parts of parameters.

    With `keeps_values` the parameters are written, and keep their values.
    """
    if gradients:
        torch._foreach_mul_([*gradients], GRADIENT_SCALE)
    if parameters:
        torch._foreach_add_([*parameters], 0 if keeps_values else _UPDATE)
