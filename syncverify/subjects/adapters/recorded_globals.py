"""The record of process-wide state before a framework changes it, and the way back to it."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any


class RecordedGlobals:
    """Attributes of one module or class, with the items of its lists, dicts and sets.

    `restore()` sets each attribute to the object that it was, fills each container in
    place, since others may hold it, and deletes attributes that came later. Modules that
    were imported meanwhile stay: Python imports them once.

    Args:
        owner: Module, class or object with the state as attributes.
    """

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._values = _state_of(owner)
        self._refills = [_refill(value) for value in self._values.values()]

    def restore(self) -> None:
        """Restore the attributes."""
        for name, value in _state_of(self._owner).items():
            if name not in self._values and not isinstance(value, ModuleType):
                delattr(self._owner, name)
        for refill in self._refills:
            refill()
        for name, value in self._values.items():
            if vars(self._owner).get(name) is not value:
                setattr(self._owner, name, value)


def _state_of(owner: Any) -> dict[str, Any]:
    return {k: v for k, v in vars(owner).items() if not k.startswith("__")}


def _refill(value: Any) -> Callable[[], None]:
    """Return a function that fills a container with the items that it has now."""
    match value:
        case list():
            return _refill_list(value)
        case dict() | set():
            return _refill_table(value)
    return lambda: None


def _refill_list(value: list[Any]) -> Callable[[], None]:
    items = list(value)

    def refill() -> None:
        value[:] = items

    return refill


def _refill_table(value: dict[Any, Any] | set[Any]) -> Callable[[], None]:
    items = value.copy()

    def refill() -> None:
        value.clear()
        value.update(items)

    return refill
