"""The method that announces the number of micro-batches, as a factory shows it."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Literal

from syncverify.subjects.subject_api import COUNT_SETTER

SetterOf = Literal["class", "instance", "none"]


def setter_of(factory: Any, method: str = COUNT_SETTER) -> SetterOf:
    """Return the place of `set_required_accumulations()`, or of another method.

    Returns:
        `class` for a method, `none` for a class without one. `instance` where only an
        instance shows whether it has one: a function makes it, a property or `__getattr__`
        returns the method.
    """
    made = factory.func if isinstance(factory, functools.partial) else factory
    if not inspect.isclass(made):
        return "instance"
    if callable(getattr(made, method, None)):
        return "class"
    is_property = hasattr(type(getattr(made, method, None)), "__get__")
    hands_on = any("__getattr__" in vars(each) for each in made.__mro__)
    return "instance" if is_property or hands_on else "none"
