"""The names by which the code at some line reaches streams and handles of collectives.

A line is added to the subject that calls `note(locals())`. `note` follows attributes and the
elements of containers, and writes their names as the subject itself would.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from syncverify.sim.device.streams import own_streams
from syncverify.sim.device.virtual_streams import VirtualStream
from syncverify.sim.network.work import DroppableHandle, SimulatedWork
from syncverify.trace.source_lines import Origin

_MAX_DEPTH: Final = 3
_MAX_OBJECTS: Final = 400
_HANDLES: Final = SimulatedWork, DroppableHandle
# Packages whose objects hold no name of a subject: torch, and the simulation of its objects.
_FOREIGN: Final = ("torch", "syncverify.sim")
_LEAVES: Final = (str, bytes, int, float, bool, type(None), torch.Tensor, type)
NOTE: Final = f"__import__({__name__!r}, fromlist=['note']).note(locals())"


@dataclass(frozen=True, slots=True)
class Name:
    """An expression of the subject.

    Attributes:
        text: The expression.
        loop: The head of the loop that it needs, without a colon; "" for none.
        is_optional: Whether it may be None.
    """

    text: str
    loop: str = ""
    is_optional: bool = False


@dataclass(slots=True)
class Scope:
    """The names that the code at a line reaches, in all passes of all ranks.

    Attributes:
        streams: Names by stream.
        works: Names by the line that launched the collective.
        tensors: Names of tensors.
        current: Streams that were current.
    """

    streams: dict[str, dict[Name, None]] = field(default_factory=dict)
    works: dict[Origin, dict[Name, None]] = field(default_factory=dict)
    tensors: dict[Name, None] = field(default_factory=dict)
    current: set[str] = field(default_factory=set)


_LISTENER: list[Scope] = []
_LOCK = threading.Lock()


@contextmanager
def listening() -> Iterator[Scope]:
    """Collect the arguments of `note`."""
    scope = Scope()
    _LISTENER.append(scope)
    try:
        yield scope
    finally:
        _LISTENER.remove(scope)


def note(local_names: Mapping[str, Any]) -> None:
    """Note the names of streams and of handles in some scope."""
    streams = own_streams()
    if not _LISTENER or streams is None:
        return
    with _LOCK, streams.recorder.not_recording_accesses():
        scope = _LISTENER[-1]
        scope.current.add(streams.current().name)
        for name, value in _Walk().objects(local_names):
            if isinstance(value, VirtualStream):
                scope.streams.setdefault(value.name, {})[name] = None
            elif isinstance(value, _HANDLES):
                scope.works.setdefault(value.launched_at, {})[name] = None
            elif isinstance(value, torch.Tensor):
                scope.tensors[name] = None


class _Walk:
    """One walk over objects, each met once."""

    def __init__(self) -> None:
        self._seen = set[int]()

    def objects(self, local_names: Mapping[str, Any]) -> Iterator[tuple[Name, Any]]:
        level = [
            (Name(key), value)
            for key, value in local_names.items()
            if key.isidentifier() and not key.startswith("__")
        ]
        taken = {*local_names}
        for _ in range(_MAX_DEPTH + 1):
            deeper: list[tuple[Name, Any]] = []
            for name, value in level:
                if id(value) in self._seen or len(self._seen) > _MAX_OBJECTS:
                    continue
                self._seen.add(id(value))
                yield name, value
                deeper += _parts(name, value, taken)
            level = deeper


def _parts(name: Name, value: Any, taken: set[str]) -> Iterator[tuple[Name, Any]]:
    """Yield what an object holds, with names."""
    if isinstance(value, (*_LEAVES, VirtualStream, *_HANDLES)):
        return
    if isinstance(value, (list, tuple, set, frozenset, dict)):
        if not name.loop:
            yield from _elements(name, value, taken)
        return
    module = type(value).__module__ or ""
    if any(module == each or module.startswith(f"{each}.") for each in _FOREIGN):
        return
    for key, part in getattr(value, "__dict__", {}).items():
        is_optional = isinstance(part, _HANDLES)
        yield Name(f"{name.text}.{key}", name.loop, is_optional), part


def _elements(name: Name, value: Any, taken: set[str]) -> Iterator[tuple[Name, Any]]:
    last = name.text.rpartition(".")[2].strip("_")
    single = last.removesuffix("es" if last.endswith("sses") else "s")
    variable = single if single not in {last, *taken} else "each"
    if isinstance(value, dict):
        head = f"for {variable} in {name.text}.values()"
        yield from ((Name(variable, head), part) for part in value.values())
    else:
        head = f"for {variable} in {name.text}"
        yield from ((Name(variable, head), part) for part in value)
