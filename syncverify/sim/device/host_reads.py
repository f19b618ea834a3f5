"""Functions of torch by which the host reads the bytes of a storage, and no operator shows it.

Note [Bytes that leave torch]
    A file, a pickle, shared memory and a printed tensor get the bytes in C++ code, beside torch's
    dispatcher. So the functions that hand bytes over note the read themselves:

    | function | of memory of the host | of memory of the device |
    |---|---|---|
    | `torch.save`, pickle, `print` | the host reads now | a copy that the host waits for |
    | shared memory, byte swap, larger storage | the host reads now | no read by the host |

    `numpy()` and `__dlpack__()` *lend* the bytes: nothing shows when a view is read. A view counts
    as read at one time alone: when it goes away, or when its rank ends. So a copy into lent bytes
    is a race if the host has not waited for it by then. A program that waits before it reads is
    never accused. A read before the wait is not seen if the view lives on until after the wait,
    nor are writes through a view, and reads through an address (`data_ptr()`).

    A thread that a rank starts reads when the operating system lets it. Its reads count as made
    where the rank has waited for the thread (`join()`, `result()` of a `ThreadPoolExecutor`), or
    where the rank ends: they are no later.

Source:
    `_save` and `_legacy_save` in torch/serialization.py; `UntypedStorage` in torch/storage.py;
    `tensor_to_numpy` in torch/csrc/utils/tensor_numpy.cpp, where the array holds its tensor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch

from syncverify.holding import holding
from syncverify.sim.device.streams import own_streams
from syncverify.sim.device.torch_internals import FILE_WRITER, PRINT, local_part

_THREAD = threading.local()


def host_reads() -> Iterator[tuple[Any, str, Any]]:
    """Yield each owner, the name of its function that reads bytes, and the replacement."""
    for owner, name, function, of_device in _FUNCTIONS:
        yield owner, name, _noting(getattr(owner, name), function, of_device=of_device)
    for owner, name, function in _LENDERS:
        yield owner, name, _lending(getattr(owner, name), function)


def reading_as(reads: Any) -> AbstractContextManager[Any]:
    """Note the reads of the calling thread, which is no rank, for the length of a block.

    `reads` is a `HostReader`, or None.
    """
    return holding(_THREAD, "reads", reads)


def thread_reads() -> Any:
    """Return the notes of the calling thread, if a rank has started it."""
    return getattr(_THREAD, "reads", None)


def _reads() -> Any:
    streams = own_streams()
    if streams is None:
        return thread_reads()
    return streams.recorder.host_reader if streams.takes_copies else None


def _noting(
    original: Callable[..., Any], function: str, *, of_device: bool
) -> Callable[..., Any]:
    def noting(*args: Any, **kwargs: Any) -> Any:
        reads = _reads()
        if reads is not None:
            for storage in filter(None, map(_storage, args)):
                reads.read_bytes(storage, function, of_device=of_device)
        return original(*args, **kwargs)

    return noting


def _lending(original: Callable[..., Any], function: str) -> Callable[..., Any]:
    def lending(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        view = original(tensor, *args, **kwargs)
        reads = _reads()
        if reads is not None and _storage(tensor) is not None:
            # A DLPack capsule is gone once it was taken, and the memory is lent on.
            lent = view if function == "Tensor.numpy" else None
            reads.lend(tensor, lent, function)
        return view

    return lending


def _storage(value: object) -> torch.UntypedStorage | None:
    """Return the storage of a tensor or of a typed storage; None where there are no bytes."""
    value = local_part(value)
    if isinstance(value, torch.TypedStorage):
        return value._untyped_storage  # noqa: SLF001  # its public names warn
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        assert isinstance(value, torch.Tensor)
        is_plain = value.layout is torch.strided and not value.is_meta
        return value.untyped_storage() if is_plain else None
    return value if isinstance(value, torch.UntypedStorage) else None


# Owner, name, name for reports, and whether memory of the device is copied to the host.
_FUNCTIONS: tuple[tuple[Any, str, str, bool], ...] = (
    (FILE_WRITER, "write_record", "torch.save", True),
    (torch.UntypedStorage, "_write_file", "torch.save", True),
    (torch.UntypedStorage, "_share_fd_cpu_", "Tensor.share_memory_", False),
    (torch.UntypedStorage, "_share_filename_cpu_", "Tensor.share_memory_", False),
    (torch.UntypedStorage, "_byteswap", "UntypedStorage.byteswap", False),
    (*PRINT, "Tensor.__repr__", True),
)
_LENDERS: tuple[tuple[Any, str, str], ...] = (
    (torch.Tensor, "numpy", "Tensor.numpy"),
    (torch.Tensor, "__dlpack__", "Tensor.__dlpack__"),
    (torch, "to_dlpack", "torch.to_dlpack"),
    (torch.utils.dlpack, "to_dlpack", "torch.to_dlpack"),
)
