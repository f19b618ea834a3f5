"""The device that a subject sees for its tensors, which lie in CPU memory."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from syncverify.plain_text import counted
from syncverify.sim.device.torch_internals import as_plain_tensors, local_part

_OFFSET_STEP = 4  # torch counts offsets in multiples of four


class SeenGenerator:
    """The random generator of one rank's GPU.

    All numbers come from the generator of the CPU, so the two generators share their draws. The
    state of a GPU's generator has 16 bytes, which torch reads: the last seed, and an offset that
    grows with draws.
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


class SeenDevice:
    """A CUDA device without memory of its own.

    Every CPU tensor counts as one of the device, but for those that were made on the host, or
    copied there, and their views. The index of the device is the number of the rank on its machine.
    A program may name `num_devices`; None for any number. `memory` knows which memory is the
    host's: a `RankRecorder`.
    """

    def __init__(
        self, device: torch.device, memory: Any, num_devices: int | None = None
    ) -> None:
        self.device = device
        self.memory = memory
        self._num_devices = num_devices
        self.generator = SeenGenerator()
        self.is_placing = False  # a function of torch runs with true devices

    def of(self, tensor: torch.Tensor) -> torch.device:
        """Return the device of a tensor, as the subject sees it."""
        real = tensor.device  # asked by a line of the harness: the truth
        if real.type != "cpu":
            return real
        with as_plain_tensors():
            return real if self.memory.is_on_host(tensor) else self.device

    @contextmanager
    def placing(self) -> Iterator[None]:
        """Pass true devices on, for the length of a block."""
        self.is_placing = True
        try:
            yield
        finally:
            self.is_placing = False

    def check_number(self, number: int | None) -> None:
        """Refuse the number of a GPU that does not exist.

        Raises:
            RuntimeError: As CUDA raises it.
        """
        count = self._num_devices
        if number is not None and count is not None and number >= count:
            raise RuntimeError(
                f"CUDA error: invalid device ordinal: cuda:{number} of {counted(count, 'GPU')}"
            )

    def check_device(self, tensors: Iterable[torch.Tensor]) -> None:
        """Refuse memory of the host in a collective of NCCL.

        Raises:
            RuntimeError: As torch raises it, since NCCL registers for CUDA alone.
        """
        for tensor in tensors:
            if self.of(tensor).type == "cpu":
                raise RuntimeError("No backend type associated with device type cpu")

    def keep_on_host(self, tensor: torch.Tensor) -> None:
        """Note that a line made a tensor in the memory of the host."""
        if _has_memory(tensor):
            for part in (*parts_of(tensor), tensor):
                self.memory.place_on_host(part)


def parts_of(tensor: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors whose memory a tensor wraps; of any other tensor, itself.

    A DTensor is no wrapper here: its memory counts as that of its local part.
    """
    if isinstance(tensor, DTensor) or not is_traceable_wrapper_subclass(tensor):
        yield tensor
        return
    for name in tensor.__tensor_flatten__()[0]:
        yield from parts_of(getattr(tensor, name))


def _has_memory(tensor: Any) -> bool:
    """Tell whether a tensor has a place; sparse ones, stand-ins and others have none."""
    local = local_part(tensor)
    is_plain = isinstance(local, torch.Tensor) and not isinstance(local, FakeTensor)
    return is_plain and not local.is_meta and local.layout is torch.strided
