"""The method that announces the number of micro-batches, as a factory shows it."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Literal

from syncverify.subjects.subject_api import COUNT_SETTER

SetterOf = Literal["class", "instance", "none"]


def setter_of(factory: Any) -> SetterOf:
    """Return the place of `set_required_accumulations()`.

    Returns:
        `class` for a method, `none` for a class without one. `instance` where only an
        instance shows whether it has one: a function makes it, a property or `__getattr__`
        returns the method.
    """
    made = factory.func if isinstance(factory, functools.partial) else factory
    if not inspect.isclass(made):
        return "instance"
    if callable(getattr(made, COUNT_SETTER, None)):
        return "class"
    is_property = hasattr(type(getattr(made, COUNT_SETTER, None)), "__get__")
    hands_on = any("__getattr__" in vars(each) for each in made.__mro__)
    return "instance" if is_property or hands_on else "none"
