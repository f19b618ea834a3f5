"""The device that a subject sees for its tensors, which lie in CPU memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.distributed.tensor import DTensor


class SeenDevice:
    """A CUDA device without memory of its own.

    Every CPU tensor counts as one of the device, but for those that the subject made on the
    host, or copied there, and their views.

    Args:
        device: The device; its index is the rank.
        is_on_host: Tells whether a tensor is known to lie in memory of the host.

    Attributes:
        device: As above.
    """

    def __init__(
        self, device: torch.device, is_on_host: Callable[[torch.Tensor], bool]
    ) -> None:
        self.device = device
        self._is_on_host = is_on_host
        # By `id`, which names a storage while it lives; see Note [When a storage goes away].
        self._kept = weakref.WeakValueDictionary[int, torch.UntypedStorage]()

    def of(self, tensor: torch.Tensor) -> torch.device:
        """Return the device of a tensor, as the subject sees it."""
        real = tensor.device  # asked by a line of the harness: the truth
        is_own = id(_storage(tensor)) in self._kept or self._is_on_host(tensor)
        return self.device if real.type == "cpu" and not is_own else real

    def check_device(self, tensors: Iterable[torch.Tensor]) -> None:
        """Refuse memory of the host in a collective of NCCL.

        Raises:
            RuntimeError: As torch raises it, since NCCL registers for CUDA alone.
        """
        for tensor in tensors:
            if self.of(tensor).type == "cpu":
                raise RuntimeError("No backend type associated with device type cpu")

    def keep_on_host(self, tensor: torch.Tensor) -> None:
        """Note that the subject made a tensor in the memory of the host."""
        storage = _storage(tensor)
        if storage is not None:
            self._kept[id(storage)] = storage


def _storage(tensor: Any) -> torch.UntypedStorage | None:
    local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor  # noqa: SLF001
    try:
        storage: torch.UntypedStorage = local.untyped_storage()
    except (NotImplementedError, RuntimeError, AttributeError):
        # Sparse tensors have no one place in memory, and a DTensor may lack its local part.
        return None
    return storage
