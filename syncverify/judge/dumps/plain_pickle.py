"""Pickles that hold plain data alone: dicts, lists, tuples, texts and numbers.

A pickle is a program. One of a stranger could import and call anything, or ask for all memory.
So its operations are looked at before it is loaded: only those that build plain data may occur.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any, Final, NoReturn

from typing_extensions import override

# fmt: off
_PLAIN: Final = frozenset({
    "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK",
    "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS",
    "EMPTY_LIST", "LIST", "APPEND", "APPENDS",
    "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
    "NONE", "NEWTRUE", "NEWFALSE", "FLOAT", "BINFLOAT",
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4",
    "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "GET", "BINGET", "LONG_BINGET", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE",
})
# fmt: on
_STORES: Final = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})


class NotPlainError(ValueError):
    """A file holds more than plain data, or is malformed."""


class _PlainUnpickler(pickle.Unpickler):
    """A second lock: no name is ever looked up."""

    @override
    def find_class(self, module: str, name: str, /) -> NoReturn:
        raise NotPlainError(f"it asks for {module}.{name}")


def loads(data: bytes) -> Any:
    """Return the plain data of a pickle.

    Raises:
        NotPlainError: It holds anything else, or is malformed.
    """
    try:
        _check(data)
        return _PlainUnpickler(io.BytesIO(data)).load()
    except NotPlainError:
        raise
    except Exception as error:  # malformed data raises nearly every kind
        raise NotPlainError(f"it is malformed: {error}") from error


def _check(data: bytes) -> None:
    """Refuse operations that do not build plain data, and places that take all memory."""
    for number, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if opcode.name not in _PLAIN:
            raise NotPlainError(f"it has the operation {opcode.name}")
        # The loader allocates memory up to a place that lies beyond the operations so far.
        if opcode.name in _STORES and not 0 <= int(str(argument)) <= number:
            raise NotPlainError(f"it stores a value at place {argument}")
