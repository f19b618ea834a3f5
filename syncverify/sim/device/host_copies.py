"""Methods of tensors and storages that a GPU would notice, and that a CPU does not dispatch.

Each function here replaces a method on the thread of a rank. It takes torch's method, the
rank's streams, and the arguments of the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from syncverify.sim.device.device_functions import refusal
from syncverify.sim.device.streams import RankStreams
from syncverify.sim.device.virtual_streams import VirtualStream


def _local(tensor: Any) -> Any:
    with torch.no_grad():
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _cpu(_: Any, streams: RankStreams, tensor: Any, *__: Any, **___: Any) -> Any:
    copied = tensor.clone()  # memory of its own, as on a GPU
    streams.wait_for_copy_of(_local(tensor))
    return copied


def _to(
    original: Any, streams: RankStreams, tensor: Any, *args: Any, **options: Any
) -> Any:
    target = options.get("device", args[0] if args else None)
    moved = original(tensor, *args, **options)
    if not isinstance(target, str) or target.partition(":")[0] != "cpu":
        return moved
    if moved is tensor:
        moved = tensor.clone()
    if not options.get("non_blocking", False):
        streams.wait_for_copy_of(_local(tensor))
    return moved


def _tolist(original: Any, streams: RankStreams, tensor: Any) -> Any:
    copied = tensor.detach().clone()
    streams.wait_for_copy_of(_local(tensor))
    return original(copied)


def _record_stream(
    _: Any, streams: RankStreams, tensor: Any, stream: VirtualStream
) -> None:
    streams.record_stream(_local(tensor), stream)


def _resize(original: Any, streams: RankStreams, storage: Any, size: int) -> Any:
    had = storage.nbytes()
    resized = original(storage, size)
    if storage.nbytes() != had:
        streams.note_resized(storage)
    return resized


HOST_COPIES: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (torch.Tensor, "cpu", _cpu),
    (torch.Tensor, "pin_memory", refusal("pinned memory")),
    (torch.Tensor, "record_stream", _record_stream),
    (torch.Tensor, "to", _to),
    (torch.Tensor, "tolist", _tolist),
    (torch.UntypedStorage, "resize_", _resize),
)
