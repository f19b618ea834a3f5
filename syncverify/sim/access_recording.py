"""See every local operator of a rank's thread, DTensor's and the engine's included."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode,
    _pop_mode,
    _push_mode,
)
from typing_extensions import override

from syncverify.sim.operators import Effects, effects_of

# Operators are few, and live as long as the process.
_EFFECTS: dict[Any, Effects | None] = {}

Note = Callable[
    [int, Effects, list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]], None
]


class AccessRecording(TorchDispatchMode):
    """Sees the operators of one thread while it is on.

    Args:
        note: Receives, for each operator that touches memory: how many events there were
            before, its effects, what it reads, what it writes, and its results.
        on_wrapped: Receives the arguments of operators on DTensors and the like, which
            are made of others that come next.
        num_events: Counts the events so far.
    """

    def __init__(
        self,
        note: Note,
        *,
        on_wrapped: Callable[[tuple[Any, ...]], None],
        num_events: Callable[[], int],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch
        self._note = note
        self._on_wrapped = on_wrapped
        self._num_events = num_events
        self._is_on = False
        self._is_silent = False

    @classmethod
    @override
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch wraps every call, and nothing here is compiled

    @override
    def __torch_dispatch__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run a local operator, then note it."""
        if types:
            if any(issubclass(kind, FakeTensor) for kind in types):
                return func(*args, **(kwargs or {}))  # no memory behind it
            # DTensor and the like unwrap themselves: their operators come next.
            self._on_wrapped(args)
            return NotImplemented
        before = self._num_events()  # a functional collective launches another within
        result = func(*args, **kwargs) if kwargs else func(*args)
        effects = _EFFECTS[func] if func in _EFFECTS else _learn(func)
        if effects is not None and not self._is_silent:
            reads = _tensors(effects.reads, args, kwargs)
            writes = _tensors(effects.writes, args, kwargs)
            self._note(before, effects, reads, writes, _results(result))
        return result

    def switch(self, *, on: bool) -> None:
        """Turn the recording on or off for the calling thread.

        torch's own `with` is not used: it keeps flags for the whole process, which
        threads that take turns would mix up.

        Args:
            on: Whether to record.
        """
        if not self._is_on and on:
            _push_mode(self)
            self._is_on = True
        elif self._is_on and not on and _get_current_dispatch_mode() is self:
            _pop_mode()
            self._is_on = False
        else:  # a mode of the subject's lies on top
            self._is_silent = self._is_on and not on


def _learn(operator: Any) -> Effects | None:
    effects = _EFFECTS[operator] = effects_of(operator)
    return effects


def _tensors(
    places: Sequence[tuple[int, str]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for index, name in places:
        given = args[index] if index < len(args) else (kwargs or {}).get(name)
        if isinstance(given, torch.Tensor):
            found.append(given)
        elif given is not None:
            found += [entry for entry in given if entry is not None]
    return found


def _results(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    return list(_flattened(result)) if isinstance(result, (tuple, list)) else []


def _flattened(results: Any) -> Iterator[torch.Tensor]:
    for result in results:
        if isinstance(result, torch.Tensor):
            yield result
        elif isinstance(result, (tuple, list)):
            yield from _flattened(result)
