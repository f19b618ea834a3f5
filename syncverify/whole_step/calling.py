"""Calls of a user's functions, which name the values that they take."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from syncverify.errors import UsageError

# Number of values that a parameter of another name may take.
_BY_PLACE: Final = 2


def call(function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """Call a function with the values that its parameters name.

    A parameter without a default whose name is not known takes the next one of the first two
    values that no other parameter names. So `lambda p: SGD(p)` gets the first value, and
    `loss(model, batch, targets)` is told that there are no `targets`.

    Args:
        function: A function of a user.
        values: What it may take, by name; the most natural value comes first.

    Returns:
        What the function returns.

    Raises:
        UsageError: It needs more than there is.
    """
    parameters = inspect.signature(function).parameters.values()
    named = {each.name for each in parameters} & {*values}
    by_place = [*values][:_BY_PLACE]
    others = iter([values[name] for name in by_place if name not in named])
    positional, by_name = list[Any](), dict[str, Any]()
    for each in parameters:
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            continue
        if each.name in named and each.kind is not each.POSITIONAL_ONLY:
            by_name[each.name] = values[each.name]
        elif each.default is each.empty:
            try:
                value = next(others)
            except StopIteration:
                raise UsageError(_text(function, each.name, values)) from None
            if each.kind is each.KEYWORD_ONLY or by_name:
                by_name[each.name] = value
            else:
                positional.append(value)
    return function(*positional, **by_name)


def _text(function: Callable[..., Any], name: str, values: Mapping[str, Any]) -> str:
    called = getattr(function, "__name__", type(function).__name__)
    can = f"it can take: {', '.join(values)}" if values else "it can take nothing"
    near = difflib.get_close_matches(name, values, n=1)
    meant = f" ({near[0]!r}?)" if near else ""
    return f"{called}() takes {name!r}{meant}, which it is not given; {can}"
