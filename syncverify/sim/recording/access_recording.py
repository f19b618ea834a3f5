"""See every operator of a rank's thread, DTensor's and the engine's included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._subclasses import FakeTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import (
    _get_current_dispatch_mode,
    _pop_mode,
    _push_mode,
)
from typing_extensions import override

from syncverify.sim.device.torch_internals import Operator, function_of_operators
from syncverify.sim.recording.operators import Effects, effects_of
from syncverify.sim.turns.refusals import refuse
from syncverify.trace.dispatch_modes import EagerMode, HarnessMode

# Plain tensors come without types, except from operators that are made of others, and
# `Parameter.data` passes its class on, though no operator of its own comes next.
_KNOWN_TYPES = {(), (DTensor,), (torch.Tensor,), (nn.Parameter,)}

OnArguments = Callable[[Any, tuple[Any, ...]], None]
Note = Callable[[int, Effects, tuple[Any, ...], dict[str, Any] | None, Any], None]


class AccessRecording(EagerMode, HarnessMode):
    """Dispatch mode that sees the operators of one thread while it is on.

    An operator on DTensors counts as the same operator on their local parts. Recording its
    local operators instead would double the cost and show no more: process groups record
    the communication.

    `note` receives, for each operator that touches memory: how many events there were before, its
    effects, its arguments by position and by name, and its result. `on_arguments` receives each
    operator before it runs, views, too, and its arguments by position.
    """

    supports_higher_order_operators = True

    def __init__(
        self, note: Note, *, on_arguments: OnArguments, num_events: Callable[[], int]
    ) -> None:
        super().__init__()
        self._note = note
        self.on_arguments = on_arguments
        self._num_events = num_events
        self._is_on = False
        self._is_silent = False

    @override
    def __torch_dispatch__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run an operator, then note it; one that is made of operators notes each of them."""
        if not isinstance(func, Operator):  # one of `torch.ops.higher_order`
            return self._run_parts(func, args, kwargs or {})
        if types not in _KNOWN_TYPES:
            if any(issubclass(kind, FakeTensor) for kind in types):
                return func(*args, **(kwargs or {}))  # no memory behind it
            return NotImplemented  # unwraps itself: its operators come next
        self.on_arguments(func, args)
        before = self._num_events()  # it may launch collectives within
        result = func(*args, **kwargs) if kwargs else func(*args)
        effects = effects_of(func)
        if effects is not None and not self._is_silent:
            self._note(before, effects, args, kwargs, result)
        return result

    def _run_parts(
        self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the operators of which another one is made, such as `flex_attention`."""
        run = function_of_operators(operator)
        if run is None:
            refuse(f"the operator {operator.name()}")
        _push_mode(self)  # torch takes a mode off while it handles an operator
        try:
            return run(*args, **kwargs)
        finally:
            _pop_mode()

    def switch(self, *, on: bool) -> None:
        """Turn the recording on or off for the calling thread.

        torch's own `with` is not used: it keeps flags for the whole process, which
        threads that take turns would mix up.
        """
        if not self._is_on and on:
            _push_mode(self)
            self._is_on = True
        elif self._is_on and not on and _get_current_dispatch_mode() is self:
            _pop_mode()
            self._is_on = False
        else:  # a mode of the subject's lies on top
            self._is_silent = self._is_on and not on
