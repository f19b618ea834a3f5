"""The random generator of a GPU that a subject sees.

All numbers come from the generator of the CPU, so the two generators share their draws. The
state of a GPU's generator has 16 bytes, which torch reads: a seed, and an offset that grows with
draws.
"""

from __future__ import annotations

import hashlib

import torch

_OFFSET_STEP = 4  # torch counts offsets in multiples of four


class SeenGenerator:
    """The generator of one rank's GPU.

    Attributes:
        seed: Its last seed.
    """

    def __init__(self) -> None:
        self.seed = torch.default_generator.initial_seed()
        self._offset = 0
        # Keys: states of this generator. Values: states of the CPU's generator.
        self._known: dict[bytes, torch.Tensor] = {}

    def manual_seed(self, seed: int) -> None:
        """Start from a seed."""
        self.seed, self._offset = int(seed), 0
        torch.default_generator.manual_seed(self.seed)

    def state(self) -> torch.Tensor:
        """Return the state, in memory of the host."""
        own, key = torch.default_generator.get_state(), self._key()
        if key in self._known and not torch.equal(self._known[key], own):
            self._offset += _OFFSET_STEP  # numbers were drawn
            key = self._key()
        self._known[key] = own
        return torch.tensor([*key], dtype=torch.uint8)

    def set_state(self, state: torch.Tensor) -> None:
        """Go on from a state, also from one that was made by hand."""
        if not isinstance(state, torch.Tensor):
            raise TypeError(f"expected a tensor of bytes, not {state!r}")
        key = bytes(state.tolist())
        self.seed = int.from_bytes(key[:8], "little")
        self._offset = int.from_bytes(key[8:], "little")
        if key in self._known:
            torch.default_generator.set_state(self._known[key])
        else:
            # Different offsets give different numbers, and the same pair gives the same numbers.
            digest = hashlib.blake2b(key, digest_size=8).digest()
            torch.default_generator.manual_seed(int.from_bytes(digest, "little"))

    def _key(self) -> bytes:
        words = (self.seed % 2**64, self._offset)
        return b"".join(word.to_bytes(8, "little") for word in words)
