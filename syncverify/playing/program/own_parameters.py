"""Values of parameters and `requires_grad`, which only the training program may change.

They are compared before each change that the training program makes, and after `unbind()`.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from syncverify.subjects.subject_api import StepsInBackward, Synchronizer
from syncverify.trace.recorder import Recorder
from syncverify.trace.records import Phase


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor, without a copy and without a graph."""
    if isinstance(tensor, DTensor):
        return tensor._local_tensor  # noqa: SLF001  # of `to_local()`, which costs 10 times as much
    return tensor.detach()


class _State(NamedTuple):
    """State of a parameter that a subject must not change."""

    value: torch.Tensor
    requires_grad: bool


class OwnParameters:
    """Values of parameters that only the training program may change."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self.parameters = parameters
        self._states = _states(parameters)
        self._changed: dict[str, None] = {}
        # Whether a subject may change values now, to make replicas equal.
        self.takes_values = False
        # Whether a micro-batch has run since; torch's `replicate` changes values in it.
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
            value, requires_grad = self._states[name]
            is_same = parameter.requires_grad == requires_grad and torch.equal(
                local_part(parameter), value
            )
            if not is_same:
                self._changed[name] = None


def _states(parameters: Mapping[str, nn.Parameter]) -> dict[str, _State]:
    return {
        name: _State(local_part(parameter).clone(), parameter.requires_grad)
        for name, parameter in parameters.items()
    }


@dataclass(eq=False)
class UpdatesInBackward:
    """Updates inside of backward: hooks of the user that take each gradient once it is reduced.

    A hook does what an optimizer's `step()` and `zero_grad()` do for one parameter. So `wait()`
    finds no gradient, and the judge gets the values that the hooks have read.

    Source:
        https://docs.pytorch.org/tutorials/intermediate/optimizer_step_in_backward_tutorial.html
    """

    own: OwnParameters
    recorder: Recorder
    # Updates local parameters with local gradients, in place.
    update: Callable[[list[torch.Tensor], list[torch.Tensor]], None]
    # Copies of the local gradients that hooks have read in this step, by name.
    taken: dict[str, torch.Tensor] = field(default_factory=dict)
    _handles: list[Any] = field(default_factory=list)
    _is_last: bool = False

    @contextmanager
    def around(self, phase: Phase, synchronizer: Synchronizer) -> Iterator[None]:
        """Have the hook from `bind()` to `unbind()`, one of which a block may call.

        A synchronizer is given the hook before `bind()`, or the hook is registered afterwards.
        """
        if phase == "unbind":
            for handle in self._handles:
                handle.remove()
        if phase == "bind" and isinstance(synchronizer, StepsInBackward):
            synchronizer.step_in_backward(self.step)
            yield
            return
        yield
        if phase == "bind":
            for parameter in self.own.parameters.values():
                if parameter.requires_grad:
                    hook = parameter.register_post_accumulate_grad_hook(self.step)
                    self._handles.append(hook)

    @contextmanager
    def in_backward(self, *, is_last: bool) -> Iterator[None]:
        """Let hooks update parameters in a block, if it has the last backward of a step."""
        self._is_last = is_last
        try:
            yield
        finally:
            self._is_last = False

    def step(self, parameter: torch.Tensor) -> None:
        """Read the gradient of a parameter, update both in place, and drop the gradient."""
        if not self._is_last or parameter.grad is None:
            return
        gradient, own = local_part(parameter.grad), self.own.parameters
        name = next(name for name, each in own.items() if each is parameter)
        self.recorder.read("read", [gradient])
        with self.recorder.not_recording_accesses(), self.own.changing(name):
            self.taken[name] = gradient.cpu().clone()
            with self.recorder.optimizing():
                self.update([local_part(parameter)], [gradient])
        parameter.grad = None

    def take(
        self, local: Mapping[str, torch.Tensor], used: Collection[str]
    ) -> dict[str, torch.Tensor]:
        """Return the gradients that hooks have taken in a step, and those that autograd left.

        No hook runs for a parameter that the last backward of a step does not use.
        """
        left = {name: local[name] for name in local if name not in used}
        taken, self.taken = self.taken, {}
        return left | taken
