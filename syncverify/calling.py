"""Calls of a user's functions, which name the values that they take."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from syncverify.errors import UsageError

# A parameter of another name may take one of the first values, this many.
_BY_PLACE: Final = 2


def call(function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """Call a function with the values that its parameters name, and return what it returns.

    A parameter without a default whose name is not known takes the next one of the first two
    values that no other parameter names: the most natural values come first. So
    `lambda p: SGD(p)` gets the first value, and `loss(model, batch, targets)` raises an error
    that names `targets`.

    Raises:
        UsageError: The function needs a parameter for which there is no value.
    """
    parameters = inspect.signature(function).parameters.values()
    named = {each.name for each in parameters} & {*values}
    by_place = [*values][:_BY_PLACE]
    others = iter([values[name] for name in by_place if name not in named])
    positional, by_name = list[Any](), dict[str, Any]()
    for each in parameters:
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            continue
        if each.name in named and each.kind is each.POSITIONAL_ONLY:
            positional.append(values[each.name])
        elif each.name in named:
            by_name[each.name] = values[each.name]
        elif each.default is each.empty:
            try:
                value = next(others)
            except StopIteration:
                raise UsageError(_lacking(function, each.name, values)) from None
            if each.kind is each.KEYWORD_ONLY or by_name:
                by_name[each.name] = value
            else:
                positional.append(value)
    return function(*positional, **by_name)


def takes(function: Callable[..., Any], name: str) -> bool:
    """Tell whether a function names a value."""
    return name in inspect.signature(function).parameters


def _lacking(function: Callable[..., Any], name: str, values: Mapping[str, Any]) -> str:
    """Return the message about a parameter that gets no value."""
    called = getattr(function, "__name__", type(function).__name__)
    can = f"it can take: {', '.join(values)}" if values else "it can take nothing"
    near = difflib.get_close_matches(name, values, n=1)
    meant = f" ({near[0]!r}?)" if near else ""
    return f"{called}() takes {name!r}{meant}, which it is not given; {can}"
