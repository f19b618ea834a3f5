"""Leftovers: the remains of a subject on a rank's parameters after `unbind()`.

Values of parameters and `requires_grad` are compared earlier too: before each change that the
training program makes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import nn

from syncverify.program.model import LocalModel, local_part
from syncverify.trace.run import Leftovers


class _State(NamedTuple):
    """State of a parameter that a subject must not change.

    Attributes:
        value: Copy of the local part.
        requires_grad: Whether the parameter is trained.
    """

    value: torch.Tensor
    requires_grad: bool

    def is_of(self, parameter: nn.Parameter) -> bool:
        """Tell whether a parameter has this value and this `requires_grad`."""
        return parameter.requires_grad == self.requires_grad and torch.equal(
            local_part(parameter), self.value
        )


class OwnParameters:
    """Values of parameters that only the training program may change.

    Attributes:
        parameters: Parameters of one rank, by name.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self.parameters = parameters
        self._states = _states(parameters)
        self._changed: dict[str, None] = {}

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Allow the training program to change parameters, for the length of a block."""
        self._note_changes()
        yield
        self._states = _states(self.parameters)

    def changed(self) -> tuple[str, ...]:
        """Name the parameters that somebody else has changed until now."""
        self._note_changes()
        return tuple(self._changed)

    def _note_changes(self) -> None:
        for name, parameter in self.parameters.items():
            if not self._states[name].is_of(parameter):
                self._changed[name] = None


def _states(parameters: Mapping[str, nn.Parameter]) -> dict[str, _State]:
    return {
        name: _State(local_part(parameter).clone(), parameter.requires_grad)
        for name, parameter in parameters.items()
    }


def leftovers(model: LocalModel, own: OwnParameters) -> Leftovers:
    """Find hooks, gradients in shared storages and changed parameters that a subject left."""
    hooks = {name: _count_hooks(p) for name, p in model.parameters.items()}
    return Leftovers(
        hooks={name: count for name, count in hooks.items() if count},
        shared_gradients=_sharing_storage(model.local_gradients()),
        changed=own.changed(),
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
