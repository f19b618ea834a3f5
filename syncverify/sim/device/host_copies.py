"""Functions of torch about memory, which act differently where host and device are two.

Each function here replaces one of torch's on the thread of a rank. Its arguments are torch's
function, the rank's streams, and the arguments of the call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from syncverify.sim.device.seen_device import parts_of
from syncverify.sim.device.streams import RankStreams
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


def _is_pinned(_: Any, streams: RankStreams, tensor: Any, *__: Any) -> bool:
    return bool(streams.recorder.is_pinned(tensor))


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
    (torch.Tensor, "is_pinned", _is_pinned),
    (torch.Tensor, "pin_memory", _pin_memory),
    (torch.Tensor, "record_stream", _record_stream),
    (torch.Tensor, "to", _to),
    (torch.Tensor, "tolist", _tolist),
    (torch.UntypedStorage, "copy_", _copy_storage),
    (torch.UntypedStorage, "resize_", _resize),
    *((torch, name, _make) for name in (*FACTORIES, "tensor")),
)
