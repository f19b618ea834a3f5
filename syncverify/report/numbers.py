"""How the elements of a gradient, and amounts of memory, are printed."""

from __future__ import annotations


def numbers_text(values: list[float] | None) -> str:
    """Print elements, whole numbers without a fraction; None is no gradient at all."""
    if values is None:
        return "no gradient"
    return "[" + ", ".join(_number(value) for value in values) + "]"


def bytes_text(num_bytes: int) -> str:
    """Print an amount of memory, in the unit that leaves it below a thousand."""
    amount, unit = float(num_bytes), "B"
    for larger in ("KB", "MB", "GB"):
        if amount >= 1000:
            amount, unit = amount / 1000, larger
    return f"{amount:.4g} {unit}"


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
