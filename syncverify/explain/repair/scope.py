"""Notes that lines added to the subject make: names in their scope, and numbers of divisions.

`note(locals())` follows attributes and the elements of containers, and writes the names by which
the code at the line reaches streams and handles of collectives.
"""

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
_THIS: Final = f"__import__({__name__!r}, fromlist=['note'])"
NOTE: Final = f"{_THIS}.note(locals())"
# A function in the place of `//`.
NOTE_DIVISION: Final = f"{_THIS}.divided"


@dataclass(frozen=True, slots=True)
class Name:
    """An expression of the subject."""

    text: str
    loop: str = ""  # the head of the loop that it needs, without a colon; "" for none
    is_optional: bool = False  # whether it may be None


@dataclass(slots=True)
class Scope:
    """The notes of all passes of all ranks."""

    # Names by stream, and by the line that launched the collective.
    streams: dict[str, dict[Name, None]] = field(default_factory=dict)
    works: dict[Origin, dict[Name, None]] = field(default_factory=dict)
    tensors: dict[Name, None] = field(default_factory=dict)
    current: set[str] = field(default_factory=set)  # streams that were current
    divisions: set[tuple[int, int]] = field(default_factory=set)


_LISTENER: list[Scope] = []
_LOCK = threading.Lock()


@contextmanager
def listening() -> Iterator[Scope]:
    """Collect the notes of a block."""
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
        for name, value in _objects(local_names):
            if isinstance(value, VirtualStream):
                scope.streams.setdefault(value.name, {})[name] = None
            elif isinstance(value, _HANDLES):
                scope.works.setdefault(value.launched_at, {})[name] = None
            elif isinstance(value, torch.Tensor):
                scope.tensors[name] = None


def divided(whole: Any, by: Any) -> Any:
    """Note the numbers of a division; return the quotient, rounded down."""
    if _LISTENER and isinstance(whole, int) and isinstance(by, int) and by > 0:
        with _LOCK:
            _LISTENER[-1].divisions.add((whole, by))
    return whole // by


def _objects(local_names: Mapping[str, Any]) -> Iterator[tuple[Name, Any]]:
    """Walk over the objects that some names reach, and yield each once."""
    seen, taken = set[int](), {*local_names}
    level = [
        (Name(key), value)
        for key, value in local_names.items()
        if key.isidentifier() and not key.startswith("__")
    ]
    for _ in range(_MAX_DEPTH + 1):
        deeper: list[tuple[Name, Any]] = []
        for name, value in level:
            if id(value) in seen or len(seen) > _MAX_OBJECTS:
                continue
            seen.add(id(value))
            yield name, value
            deeper += _parts(name, value, taken)
        level = deeper


def _parts(name: Name, value: Any, taken: set[str]) -> Iterator[tuple[Name, Any]]:
    """Yield what an object holds, with names."""
    if isinstance(value, (*_LEAVES, VirtualStream, *_HANDLES)):
        return
    if isinstance(value, (list, tuple, set, frozenset, dict)):
        yield from () if name.loop else _elements(name, value, taken)
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
    head, values = f"for {variable} in {name.text}", value
    if isinstance(value, dict):
        head, values = f"{head}.values()", value.values()
    yield from ((Name(variable, head), part) for part in values)
