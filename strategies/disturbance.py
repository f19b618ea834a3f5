"""Disturb what a subject must not depend on, so that depending on it shows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

# Python serves objects of up to 512 bytes from lists of free blocks, one a size.
_BLOCK_SIZES_BYTES = range(16, 513, 16)
_BLOCKS_PER_SIZE = 40


@contextmanager
def disturbed_addresses() -> Iterator[None]:
    """Have new objects lie in another order in memory than they did before.

    The same program allocates the same addresses again, so that an order that comes from
    `id()` would look like one to rely on.
    """
    ballast = [
        bytearray(size - 1)
        for size in _BLOCK_SIZES_BYTES
        for _ in range(_BLOCKS_PER_SIZE)
    ]
    random.Random(len(ballast)).shuffle(ballast)
    del ballast[::2]
    yield
    ballast.clear()
