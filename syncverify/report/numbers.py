"""How the elements of a gradient are printed."""

from __future__ import annotations


def numbers_text(values: list[float] | None) -> str:
    """Print elements, whole numbers without a fraction; None is no gradient at all."""
    if values is None:
        return "no gradient"
    return "[" + ", ".join(_number(value) for value in values) + "]"


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
