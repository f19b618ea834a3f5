"""Values of parameters and `requires_grad`, which only the training program may change.

They are compared before each change that the training program makes, and after `unbind()`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import nn

from syncverify.playing.program.local_parts import local_part


class _State(NamedTuple):
    """State of a parameter that a subject must not change."""

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
        takes_values: Whether a subject may change values now, to make replicas equal.
        had_forward: Whether a micro-batch has run since; torch's `replicate` changes values in it.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self.parameters = parameters
        self._states = _states(parameters)
        self._changed: dict[str, None] = {}
        self.takes_values = False
        self.had_forward = False

    @contextmanager
    def changing(self, *names: str) -> Iterator[None]:
        """Allow the training program to change parameters, for the length of a block.

        Without names it may change all of them.
        """
        changed = {name: self.parameters[name] for name in names or self.parameters}
        self._note_changes(changed)
        yield
        self._states |= _states(changed)

    def take_next_values(self) -> None:
        """Let a subject change values until `take_values`."""
        self._note_changes(self.parameters)
        self.takes_values = True
        self.had_forward = False

    def take_values(self) -> None:
        """Keep the values as those of the training program."""
        self._states = _states(self.parameters)
        self.takes_values = False

    def values(self) -> dict[str, torch.Tensor]:
        """Return a copy of each parameter's local part on the host, by name."""
        return {name: each.value.cpu() for name, each in self._states.items()}

    def changed(self) -> tuple[str, ...]:
        """Name the parameters that somebody else has changed until now."""
        self._note_changes(self.parameters)
        return tuple(self._changed)

    def _note_changes(self, parameters: Mapping[str, nn.Parameter]) -> None:
        if self.takes_values:
            return
        for name, parameter in parameters.items():
            if not self._states[name].is_of(parameter):
                self._changed[name] = None


def _states(parameters: Mapping[str, nn.Parameter]) -> dict[str, _State]:
    return {
        name: _State(local_part(parameter).clone(), parameter.requires_grad)
        for name, parameter in parameters.items()
    }
