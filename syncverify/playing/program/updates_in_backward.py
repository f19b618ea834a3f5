"""Updates inside of backward: hooks of the user that take each gradient once it is reduced.

A hook does what an optimizer's `step()` and `zero_grad()` do for one parameter. So `wait()` finds
no gradient, and the judge gets the values that the hooks have read.

Source:
    https://docs.pytorch.org/tutorials/intermediate/optimizer_step_in_backward_tutorial.html
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from syncverify.playing.program.local_parts import local_part
from syncverify.playing.program.own_parameters import OwnParameters
from syncverify.subjects.subject_api import StepsInBackward, Synchronizer
from syncverify.trace.recorder import Recorder

# Updates local parameters with local gradients, in place.
WriteUpdates = Callable[[list[torch.Tensor], list[torch.Tensor]], None]


class UpdatesInBackward:
    """The hooks of one rank.

    Attributes:
        taken: Copies of the local gradients that hooks have read in this step, by name.
    """

    def __init__(
        self, own: OwnParameters, recorder: Recorder, update: WriteUpdates
    ) -> None:
        self.own = own
        self.recorder = recorder
        self.update = update
        self.taken: dict[str, torch.Tensor] = {}
        self._names: dict[torch.Tensor, str] = {
            each: name for name, each in own.parameters.items()
        }
        self._handles: list[Any] = []
        self._is_last = False

    @contextmanager
    def binding(self, synchronizer: Synchronizer) -> Iterator[None]:
        """Bind a synchronizer in a block: hand it the hook, or register the hook afterwards."""
        if isinstance(synchronizer, StepsInBackward):
            synchronizer.step_in_backward(self.step)
            yield
            return
        yield
        for parameter in self._names:
            if parameter.requires_grad:
                hook = parameter.register_post_accumulate_grad_hook(self.step)
                self._handles.append(hook)

    @contextmanager
    def unbinding(self) -> Iterator[None]:
        """Remove the hooks from the parameters before a block."""
        for handle in self._handles:
            handle.remove()
        yield

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
        name, gradient = self._names[parameter], local_part(parameter.grad)
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
