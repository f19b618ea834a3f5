"""The device that a subject sees for its tensors, which lie in CPU memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch
from torch._subclasses import FakeTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from syncverify.plain_text import counted
from syncverify.sim.device.seen_generator import SeenGenerator
from syncverify.sim.device.torch_internals import as_plain_tensors


class HostMemory(Protocol):
    """Knows which memory is the host's."""

    def is_on_host(self, tensor: torch.Tensor) -> bool:
        """Tell whether the memory of a tensor is known to be the host's."""

    def place_on_host(self, tensor: torch.Tensor) -> None:
        """Note that the memory of a tensor is the host's."""

    def place_on_device(self, tensor: torch.Tensor) -> None:
        """Note that the memory of a tensor is the device's."""

    def unrecorded(self) -> AbstractContextManager[None]:
        """Leave out operators of which nobody else can use the memory yet."""


class SeenDevice:
    """A CUDA device without memory of its own.

    Every CPU tensor counts as one of the device, but for those that were made on the host, or
    copied there, and their views.

    Args:
        device: The device; its index is the number of the rank on its machine.
        memory: Memory of the rank.
        num_devices: Number of devices that a program may name; None for any number.

    Attributes:
        device, memory: The arguments.
        generator: Random generator of the device.
        is_placing: Whether a function of torch runs with true devices.
    """

    def __init__(
        self, device: torch.device, memory: HostMemory, num_devices: int | None = None
    ) -> None:
        self.device = device
        self.memory = memory
        self._num_devices = num_devices
        self.generator = SeenGenerator()
        self.is_placing = False

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

    def wrap_on_host(self, wrapper: torch.Tensor) -> None:
        """Note that a line made a tensor without memory, whose parts lie on the host."""
        with as_plain_tensors():
            self.memory.place_on_host(wrapper)


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
    local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor  # noqa: SLF001
    is_plain = isinstance(local, torch.Tensor) and not isinstance(local, FakeTensor)
    return is_plain and not local.is_meta and local.layout is torch.strided
