"""Python's collector of reference cycles, held off for a block."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection_of_cycles() -> Iterator[None]:
    """Collect no reference cycles in a block: which finalizers are called depends on chance.

    The block sets the collector's threshold. Whether the collector is enabled is a setting of
    the subject.
    """
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        yield
    finally:
        gc.set_threshold(*before)
