"""Random generators: torch's for the CPU, Python's, and NumPy's where a program uses NumPy.

Each rank starts from the state that the process has at the start of the run.
"""

from __future__ import annotations

import ctypes
import operator
import random
import sys
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import torch

from syncverify.sim.per_rank.change import ProcessPart, Value

# Bytes of the state of NumPy's Mersenne Twister: 624 words, and a position among them.
_NUM_BYTES: Final = 4 * (624 + 1)


def generators() -> Iterator[ProcessPart]:
    """Yield the generators of the process."""
    yield _OfTorch()
    yield _OfPython(random.getstate, random.setstate, operator.eq)
    yield _OfNumpy()


class _OfTorch:
    """torch's generator; to copy its state is faster than to compare it."""

    is_imported = False

    def __init__(self) -> None:
        self.share()

    def share(self) -> None:
        """Let the present state be that of all ranks."""
        self._shared = torch.default_generator.get_state()

    def take(self) -> torch.Tensor:
        """Return the rank's state, changed or not."""
        own = torch.default_generator.get_state()
        torch.default_generator.set_state(self._shared)
        return own

    def put(self, change: torch.Tensor) -> None:
        """Set the rank's state."""
        torch.default_generator.set_state(change)


class _OfPython(Value):
    """Python's generator; what an import draws, the importing rank draws."""

    is_imported = False


class _NumpyState(NamedTuple):
    """State of NumPy's generator.

    Attributes:
        words: The words of its Mersenne Twister, and the position among them.
        second: The second number of a normal pair, whose first was drawn; None without one.
        generator: Generator that the program has put in the place of NumPy's; None if it has
            not.
    """

    words: bytes
    second: float | None
    generator: Any = None


class _OfNumpy:
    """NumPy's generator, from the moment at which somebody imports it.

    `get_state` takes 30 us and more. The words can be copied at the address that NumPy gives.
    The second number of a normal pair lies elsewhere; a draw that leaves the words as they are
    shows it.
    """

    is_imported = False

    def __init__(self) -> None:
        self._numpy_random: Any = None
        self._generator: Any = None
        self.share()

    def share(self) -> None:
        """Let the present state be that of all ranks."""
        found: Any = sys.modules.get("numpy.random")
        # Absent during the import. A process that has another kind of generator keeps it.
        generator = getattr(found, "get_bit_generator", lambda: None)()
        if type(generator).__name__ == "MT19937":
            self._numpy_random, self._generator = found, generator
            self._shared = self._taken()
            self.put(self._shared)

    def take(self) -> _NumpyState | None:
        """Return the rank's state, or None if it is that of all ranks."""
        if self._numpy_random is None:
            self.share()
            return None
        other = self._numpy_random.get_bit_generator()
        if other is not self._generator:
            self._numpy_random.set_bit_generator(self._generator)
            self.put(self._shared)
            return self._shared._replace(generator=other)
        if self._shared.second is None and self._words() == self._shared.words:
            return None
        own = self._taken()
        self.put(self._shared)
        return own

    def put(self, change: _NumpyState) -> None:
        """Set the rank's state; no normal pair is half drawn at present."""
        ctypes.memmove(self._address(), change.words, _NUM_BYTES)
        if change.generator is not None:
            self._numpy_random.set_bit_generator(change.generator)
        elif change.second is not None:
            name, words, position, *_ = self._numpy_random.get_state()
            state = (name, words, position, 1, change.second)
            self._numpy_random.set_state(state)

    def _taken(self) -> _NumpyState:
        """Return the state, and leave no normal pair that is half drawn."""
        words = self._words()
        number = self._numpy_random.standard_normal()
        if self._words() == words:
            return _NumpyState(words, number)
        self._numpy_random.standard_normal()
        ctypes.memmove(self._address(), words, _NUM_BYTES)
        return _NumpyState(words, None)

    def _words(self) -> bytes:
        return ctypes.string_at(self._address(), _NUM_BYTES)

    def _address(self) -> int:
        address: int = self._generator.ctypes.state_address
        return address
