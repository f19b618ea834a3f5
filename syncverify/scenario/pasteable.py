"""The text of a value as code that makes it again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, fields
from typing import Any

from typing_extensions import override


class Pasteable:
    """A dataclass whose `repr` is a call with the arguments that differ from their defaults.

    `eval(repr(value)) == value` with the public names of `syncverify`, as in `@example`.
    """

    __slots__ = ()

    @override
    def __repr__(self) -> str:
        words = (f"{each.name}={getattr(self, each.name)!r}" for each in _changed(self))
        return f"{type(self).__name__}({', '.join(words)})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: FBT001  # a protocol
        """Print with line breaks, in IPython and in the examples of Hypothesis."""
        with printer.group(4, f"{type(self).__name__}(", ")"):
            for number, each in enumerate(_changed(self)):
                if number:
                    printer.text(",")
                    printer.breakable()
                printer.text(f"{each.name}=")
                printer.pretty(getattr(self, each.name))


def _changed(value: Any) -> Iterator[Field[Any]]:
    """Yield the fields of a dataclass that differ from their defaults."""
    for each in fields(value):
        if getattr(value, each.name) != each.default:
            yield each
