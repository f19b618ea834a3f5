"""Leftovers: the remains of a subject on a rank's parameters after `unbind()`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import nn

from syncverify.program.model import LocalModel, local_part
from syncverify.trace.run import Leftovers


class ParameterState(NamedTuple):
    """State of a parameter that a subject must not change.

    Attributes:
        value: Copy of the local part.
        requires_grad: Whether the parameter is trained.
    """

    value: torch.Tensor
    requires_grad: bool

    def equals(self, other: ParameterState) -> bool:
        """Tell whether value and `requires_grad` are equal."""
        return (
            torch.equal(self.value, other.value)
            and self.requires_grad == other.requires_grad
        )


def parameter_states(
    parameters: Mapping[str, nn.Parameter],
) -> dict[str, ParameterState]:
    """Copy the state of each parameter, by name."""
    return {
        name: ParameterState(local_part(parameter).clone(), parameter.requires_grad)
        for name, parameter in parameters.items()
    }


def leftovers(model: LocalModel, original: Mapping[str, ParameterState]) -> Leftovers:
    """Find hooks, gradients in shared storages and changed parameters that a subject left."""
    hooks = {name: _count_hooks(p) for name, p in model.parameters.items()}
    now = parameter_states(model.parameters)
    return Leftovers(
        hooks={name: count for name, count in hooks.items() if count},
        shared_gradients=_sharing_storage(model.local_gradients()),
        changed=tuple(name for name in now if not now[name].equals(original[name])),
    )


def _count_hooks(parameter: nn.Parameter) -> int:
    # torch has no public way to list hooks. Every tensor keeps them in these dictionaries
    # (torch/_tensor.py, register_post_accumulate_grad_hook).
    registries = (
        parameter._post_accumulate_grad_hooks,  # noqa: SLF001
        parameter._backward_hooks,  # noqa: SLF001
    )
    return sum(len(registry) for registry in registries if registry)


def _sharing_storage(gradients: dict[str, torch.Tensor]) -> tuple[str, ...]:
    sharing: set[str] = set()
    for (one, first), (other, second) in itertools.combinations(gradients.items(), 2):
        same = first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
        if same and first.numel() and second.numel():
            sharing |= {one, other}
    return tuple(name for name in gradients if name in sharing)
