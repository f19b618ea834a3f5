"""Names of torch that a simulated class or module does not answer: a call is refused, by name.

A release of torch adds names. Torch's own function behind one would ask a real device or backend,
and the error would read like the subject's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NoReturn, TypeVar

from typing_extensions import override

from syncverify.sim.turns.refusals import refusal, refuse

Simulated = TypeVar("Simulated", bound=type)


def refuse_missing(name: str, *of_torch: type) -> NoReturn:
    """Refuse an attribute of torch's class that the simulated one lacks.

    Args:
        name: Name of the attribute.
        of_torch: Torch's classes of such objects; messages name the first.

    Raises:
        EnvironmentNotSupportedError: Torch's objects have the attribute.
        AttributeError: They lack it, too.
    """
    title = of_torch[0].__name__
    if any(hasattr(each, name) for each in of_torch):
        refuse(f"{title}.{name}")
    raise AttributeError(f"{title!r} object has no attribute {name!r}")


def unanswered(own: type, of_torch: type, inherited: Collection[str]) -> list[str]:
    """List the names that a class has from torch's base, but for those that fit each object.

    Args:
        own: The simulated class.
        of_torch: Torch's class, one of its bases.
        inherited: Names of torch's class that answer for a simulated object as well.

    Returns:
        The names, in order.
    """
    return [
        name
        for name in dir(of_torch)
        if not hasattr(object, name)
        and name not in inherited
        and name not in ("__dict__", "__module__", "__weakref__")
        and getattr(own, name) == getattr(of_torch, name)
    ]


def refusing_rest(
    of_torch: type, inherited: Collection[str]
) -> Callable[[Simulated], Simulated]:
    """Return a decorator that lets a class refuse the names that it does not answer."""

    def decorated(own: Simulated) -> Simulated:
        for name in unanswered(own, of_torch, inherited):
            title = f"{of_torch.__name__}.{name}"
            is_method = callable(getattr(of_torch, name))
            setattr(own, name, refusal(title) if is_method else RefusedAttribute(title))
        return own

    return decorated


class RefusedAttribute(property):
    """An attribute whose value no simulated object has.

    Args:
        title: Its name, with that of torch's class.
    """

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    @override
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else refuse(self._title)
