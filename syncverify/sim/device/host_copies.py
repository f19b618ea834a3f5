"""Functions of torch about memory, which act differently where host and device are two.

Each function of `MEMORY_FUNCTIONS` replaces one of torch's on the thread of a rank. Its arguments
are torch's function, the rank's streams, and the arguments of the call. By the functions of
`host_reads()` the host reads the bytes of a storage, and no operator shows it.

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

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from syncverify.holding import holding
from syncverify.sim.device.seen_device import parts_of
from syncverify.sim.device.streams import RankStreams, own_streams
from syncverify.sim.device.torch_internals import FILE_WRITER, PRINT, local_part
from syncverify.sim.device.virtual_streams import VirtualStream

FACTORIES = (
    "arange", "empty", "empty_strided", "eye", "full", "linspace", "logspace", "ones",
    "rand", "randint", "randn", "randperm", "zeros", "empty_like", "full_like",
    "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like",
)  # fmt: skip


def _local(tensor: Any) -> Any:
    with torch.no_grad():
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _cpu(_: Any, streams: RankStreams, tensor: Any, *__: Any, **___: Any) -> Any:
    if streams.recorder.is_on_host(tensor):
        return tensor
    return _blocking_copy(tensor.clone(), tensor, streams)  # as on a GPU


def _to(
    original: Any, streams: RankStreams, tensor: Any, *args: Any, **options: Any
) -> Any:
    target = options.get("device", options.get("other", next(iter(args), None)))
    # By position, `non_blocking` is the first flag of each form of `to`.
    flag = next((each for each in args if isinstance(each, bool)), False)
    non_blocking = options.get("non_blocking", flag)
    moved = original(tensor, *args, **options)
    goes_to_host = _is_host(target, streams)
    if streams.recorder.is_on_host(tensor):
        if goes_to_host or not isinstance(target, (torch.device, torch.Tensor)):
            return moved
        return _new_like(moved, streams).copy_(moved, non_blocking=non_blocking)
    if goes_to_host and non_blocking:
        return _pinned_like(moved, streams).copy_(moved, non_blocking=True)
    if goes_to_host:
        return _blocking_copy(
            tensor.clone() if moved is tensor else moved, tensor, streams
        )
    return moved


def _is_host(target: Any, streams: RankStreams) -> bool:
    """Tell whether a target of `to` is the host; a `torch.device` may be the tensor's own."""
    if isinstance(target, torch.Tensor):
        return bool(streams.recorder.is_on_host(target))
    return isinstance(target, str) and target.partition(":")[0] == "cpu"


def _blocking_copy(copied: Any, tensor: Any, streams: RankStreams) -> Any:
    if streams.recorder.wait_for_copy_of(_local(tensor)):
        streams.recorder.place_on_host(copied)
    return copied


def _new_like(tensor: Any, streams: RankStreams) -> Any:
    """Allocate memory with contents that no program should read, the same in each run."""
    with streams.recorder.not_recording_accesses():
        new = torch.empty_like(tensor)
        return new.fill_(math.nan) if new.is_floating_point() else new


def _pinned_like(tensor: Any, streams: RankStreams) -> Any:
    new = _new_like(tensor, streams)
    streams.recorder.place_on_host(new, is_pinned=True)
    return new


def _pin_memory(_: Any, streams: RankStreams, tensor: Any, *__: Any) -> Any:
    if streams.recorder.is_pinned(tensor):
        return tensor
    return _pinned_like(tensor, streams).copy_(tensor)


def _make(
    original: Any,
    streams: RankStreams,
    *args: Any,
    pin_memory: bool = False,
    **options: Any,
) -> Any:
    if not pin_memory:
        return original(*args, **options)
    # The host fills it, before anybody else can.
    with streams.recorder.not_recording_accesses():
        made = original(*args, **options)
    streams.recorder.place_on_host(made, is_pinned=True)
    return made


def _tolist(original: Any, streams: RankStreams, tensor: Any) -> Any:
    copied = tensor.detach().clone()
    streams.recorder.wait_for_copy_of(_local(tensor))
    return original(copied)


def _record_stream(
    _: Any, streams: RankStreams, tensor: Any, stream: VirtualStream
) -> None:
    for part in parts_of(_local(tensor)):
        streams.record_stream(part, stream)


def _copy_storage(
    original: Any, streams: RankStreams, target: Any, source: Any, *options: Any, **named: Any
) -> Any:  # fmt: skip
    streams.recorder.keep_together(target, source)
    return original(target, source, *options, **named)  # an operator, which is recorded


def _resize(original: Any, streams: RankStreams, storage: Any, size: int) -> Any:
    had = storage.nbytes()
    if size > had:  # memory of the host moves to another place
        streams.recorder.host_reader.read_bytes(
            storage, "UntypedStorage.resize_", of_device=False
        )
    resized = original(storage, size)
    if storage.nbytes() != had:
        streams.recorder.note_resized(storage, had)
    return resized


MEMORY_FUNCTIONS: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (torch.Tensor, "cpu", _cpu),
    (torch.Tensor, "is_pinned", lambda _, own, each, *__: own.recorder.is_pinned(each)),
    (torch.Tensor, "pin_memory", _pin_memory),
    (torch.Tensor, "record_stream", _record_stream),
    (torch.Tensor, "to", _to),
    (torch.Tensor, "tolist", _tolist),
    (torch.UntypedStorage, "copy_", _copy_storage),
    (torch.UntypedStorage, "resize_", _resize),
    *((torch, name, _make) for name in (*FACTORIES, "tensor")),
)


_THREAD = threading.local()


def host_reads() -> Iterator[tuple[Any, str, Any]]:
    """Yield each owner, the name of its function that reads bytes, and the replacement."""
    for owner, name, function, of_device in _READERS:
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
_READERS: tuple[tuple[Any, str, str, bool], ...] = (
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
