"""Methods of tensors and storages that a CPU does not dispatch, but a GPU would notice.

Each function here takes what torch has under a name, and returns what stands there on the
thread of a rank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from syncverify.sim.device_functions import refusal
from syncverify.sim.streams import RankStreams, VirtualStream


def _local(tensor: Any) -> Any:
    with torch.no_grad():
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _cpu(_: Any) -> Callable[..., Any]:
    def cpu(streams: RankStreams, tensor: Any, *_: Any, **__: Any) -> Any:
        copied = tensor.clone()  # memory of its own, as on a GPU
        streams.wait_for_copy_of(_local(tensor))
        return copied

    return cpu


def _to(original: Any) -> Callable[..., Any]:
    def to(streams: RankStreams, tensor: Any, *args: Any, **options: Any) -> Any:
        target = options.get("device", args[0] if args else None)
        moved = original(tensor, *args, **options)
        if not isinstance(target, str) or target.partition(":")[0] != "cpu":
            return moved
        if moved is tensor:
            moved = tensor.clone()
        if not options.get("non_blocking", False):
            streams.wait_for_copy_of(_local(tensor))
        return moved

    return to


def _tolist(original: Any) -> Callable[..., Any]:
    def tolist(streams: RankStreams, tensor: Any) -> Any:
        copied = tensor.detach().clone()
        streams.wait_for_copy_of(_local(tensor))
        return original(copied)

    return tolist


def _record_stream(_: Any) -> Callable[..., Any]:
    def record_stream(streams: RankStreams, tensor: Any, stream: VirtualStream) -> None:
        streams.record_stream(_local(tensor), stream)

    return record_stream


def _resize(original: Any) -> Callable[..., Any]:
    def resize(streams: RankStreams, storage: Any, size: int) -> Any:
        had = storage.nbytes()
        resized = original(storage, size)
        if storage.nbytes() != had:
            streams.note_resized(storage)
        return resized

    return resize


HOST_COPIES: tuple[tuple[Any, str, Callable[[Any], Callable[..., Any]]], ...] = (
    (torch.Tensor, "cpu", _cpu),
    (torch.Tensor, "pin_memory", lambda _: refusal("pinned memory")),
    (torch.Tensor, "record_stream", _record_stream),
    (torch.Tensor, "to", _to),
    (torch.Tensor, "tolist", _tolist),
    (torch.UntypedStorage, "resize_", _resize),
)
