"""Attributes that have another value for the length of a block."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def holding(owner: Any, name: str, value: Any) -> Iterator[Any]:
    """Give an attribute a value for a block, which gets the value; then put back the one before."""
    before = getattr(owner, name, None)
    setattr(owner, name, value)
    try:
        yield value
    finally:
        setattr(owner, name, before)
