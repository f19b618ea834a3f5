"""The functions of torch's device modules, as they behave on the thread of a rank.

A rank has one device and its streams. The device has number 0, unless `seen_names.py` shows
the subject another one. A function that needs more of a device ends the run with an error.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from typing_extensions import override

from syncverify.sim.device.streams import RankStreams
from syncverify.sim.device.virtual_streams import VirtualStream, own_stream
from syncverify.sim.turns.refusals import refusal

Replacement = Callable[..., Any]


def current_stream_context(
    _: RankStreams, stream: VirtualStream | None
) -> AbstractContextManager[Any]:
    """Return a context in which a stream is current; None changes nothing."""
    return nullcontext() if stream is None else CurrentStream(stream)


class CurrentStream(AbstractContextManager[None]):
    """The context of `torch.cuda.stream()`: yields None, and may be used again."""

    def __init__(self, stream: VirtualStream) -> None:
        self.stream = own_stream(stream)

    @override
    def __enter__(self) -> None:
        self.stream.__enter__()

    @override
    def __exit__(self, *_: object) -> None:
        self.stream.__exit__()


def _set_stream(streams: RankStreams, stream: VirtualStream | None) -> None:
    if stream is not None:
        streams.engine.set_current(own_stream(stream))


def set_device(streams: RankStreams, device: Any) -> None:
    """Change nothing: a rank has one device. It may name any that the machine has."""
    if streams.seen is not None and device is not None:
        number = device if isinstance(device, int) else torch.device(device).index
        streams.seen.check_number(number)


def set_device_context(
    streams: RankStreams, device: Any
) -> AbstractContextManager[Any]:
    """Return the context of `torch.cuda.device()`, in which nothing changes."""
    set_device(streams, device)
    return nullcontext()


def _nothing(_: RankStreams, *__: Any, **___: Any) -> None:
    """Do nothing: there is one device, and no time to spend or to measure."""


_STREAMS: dict[str, Replacement] = {
    "current_stream": lambda streams, device=None: streams.current(),  # torch's names
    "default_stream": lambda streams, device=None: streams.default,
    "set_stream": _set_stream,
    "stream": current_stream_context,
    "synchronize": lambda streams, device=None: streams.synchronize(),
}


def _some(*names: str) -> dict[str, Replacement]:
    return {name: _STREAMS[name] for name in names}


CUDA: dict[str, Replacement] = {
    **_STREAMS,
    # torch calls it before any use of a real device, such as a tensor or a handle.
    "_lazy_init": refusal(
        "CUDA devices (make tensors on the device of the parameters, and look names of "
        "torch.cuda up when they are needed)"
    ),
    **dict.fromkeys(
        ("graph_pool_handle", "make_graphed_callables"), refusal("CUDA graphs")
    ),
    "_sleep": _nothing,  # every order is judged anyway
    "current_device": lambda _: 0,
    "is_current_stream_capturing": lambda _: False,
    "set_device": set_device,
}
CPU: dict[str, Replacement] = _some("current_stream", "stream", "synchronize")
ACCELERATOR: dict[str, Replacement] = {
    **_some("current_stream", "set_stream", "synchronize"),
    "current_device_idx": lambda _: 0,  # the former name
    "current_device_index": lambda _: 0,
    "set_device_idx": set_device,
    "set_device_index": set_device,
}
RANGES: dict[str, Replacement] = dict.fromkeys(
    ("mark", "range_end", "range_pop", "range_push", "range_start"), _nothing
)
PROFILER: dict[str, Replacement] = dict.fromkeys(("start", "stop"), _nothing)
