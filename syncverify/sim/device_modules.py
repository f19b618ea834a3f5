"""Virtual streams behind torch's own names, for the length of a run.

Each replaced name asks which thread calls: a rank's gets virtual streams, any other what
torch has there. What is replaced is looked up on the modules at each call, as
`torch.cuda.current_stream()` does; a function that was imported by name before the run
(`from torch.cuda import current_stream`) stays what it was, and ends the run in words.
`torch.cuda.is_available()` stays false: tensors cannot be made on a CUDA device.

Blocking copies to the host
    On CPU tensors, "the host" and "the device" are the same. `Tensor.cpu()`,
    `Tensor.tolist()` and `Tensor.to("cpu")` with a string are taken for copies to the host.
    `Tensor.to(device)` with a `torch.device` is not, as it may be the tensor's own device,
    and `copy_` into a tensor that is meant to lie on the host cannot be told from any
    other `copy_`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from typing_extensions import override

from syncverify.sim.device_functions import (
    ACCELERATOR,
    CPU,
    CUDA,
    RANGES,
    CurrentStream,
    Make,
    current_stream_context,
    refusal,
)
from syncverify.sim.host_copies import HOST_COPIES
from syncverify.sim.streams import RankStreams, VirtualEvent, VirtualStream, own_streams

_MISSING = object()


class _ByThread(type):
    """A class whose instances are virtual ones on a rank's thread."""

    original: type
    virtual: type
    make: Make

    @override
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        streams = own_streams()
        return (
            cls.make(streams, *args, **kwargs)
            if streams
            else cls.original(*args, **kwargs)
        )

    def __getattr__(cls, name: str) -> Any:
        """Show what instances have, as `torch.cuda.Stream.priority_range`."""
        return getattr(cls.virtual, name)

    @override
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (cls.original, cls.virtual))


def _class(original: type, virtual: type, make: Make) -> type:
    parts = {"original": original, "virtual": virtual, "make": staticmethod(make)}
    return _ByThread(original.__name__, (), parts)


def _new(original: Any, make: Make) -> Any:
    """Let a class make virtual instances for those who imported it by name."""

    def by_thread(cls: type, *args: Any, **kwargs: Any) -> Any:
        streams = own_streams()
        if streams is None:
            return original(cls, *args, **kwargs)
        return make(streams, *args, **kwargs)

    return staticmethod(by_thread)


def _function(original: Any, virtual: Make) -> Callable[..., Any]:
    def by_thread(*args: Any, **kwargs: Any) -> Any:
        streams = own_streams()
        return (
            virtual(streams, *args, **kwargs) if streams else original(*args, **kwargs)
        )

    return by_thread


def _create(
    streams: RankStreams, device: Any = None, priority: int = 0, **_: Any
) -> VirtualStream:
    return streams.create(device, priority)


def _create_on_cpu(streams: RankStreams, priority: int = -1) -> VirtualStream:
    return streams.create(None, priority)  # `torch.cpu.Stream` takes no device


def _create_event(
    streams: RankStreams, *positional: bool, enable_timing: bool = False, **_: Any
) -> VirtualEvent:
    timing = positional[0] if positional else enable_timing
    return VirtualEvent(streams, enable_timing=timing)


def _create_generic_event(
    streams: RankStreams, device: Any = None, *, enable_timing: bool = False, **_: Any
) -> VirtualEvent:
    return VirtualEvent(streams, enable_timing=enable_timing)


def _run_backward(original: Callable[..., Any]) -> Make:
    def virtual(
        streams: RankStreams, outputs: Any, gradients: Any, retain: Any,
        create: Any, inputs: Any = (), *more: Any, **options: Any,
    ) -> Any:  # fmt: skip
        settings = (gradients, retain, create, inputs, *more)
        return streams.engine.run_backward(
            lambda: original(outputs, *settings, **options),
            outputs,
            gradients,
            inputs,
        )

    return virtual


# Classes of one device module, and what is made in their place.
_CLASSES: tuple[tuple[Any, str, Make], ...] = (
    (torch.cuda, "CUDAGraph", refusal("CUDA graphs")),
    (torch.cuda, "ExternalStream", refusal("streams that others have made")),
    (torch.cuda, "MemPool", refusal("pools of memory")),
    (torch.cuda, "device", lambda _, __: nullcontext()),
    (torch.accelerator, "device_index", lambda _, __: nullcontext()),
)
# Classes whose makers may have imported them by name, and what is made in their place.
_IMPORTED: tuple[tuple[Any, Make], ...] = (
    (torch.cuda.Stream, _create),
    (torch.cuda.Event, _create_event),
)


def _replacements() -> Iterator[tuple[Any, str, Any]]:
    """Yield whose attribute becomes what."""
    for module, functions in (
        (torch.cuda, CUDA),
        (torch.cuda.nvtx, RANGES),
        (torch.cpu, CPU),
        (torch.accelerator, ACCELERATOR),
    ):
        for name, virtual in functions.items():
            yield module, name, _function(getattr(module, name), virtual)
    for imported, make in _IMPORTED:
        yield imported, "__new__", _new(imported.__new__, make)
    for owner, name, make in _CLASSES:
        original = getattr(owner, name)
        yield owner, name, _class(original, original, make)
    for owner, name, virtual_class, make_instance in (
        (torch, "Stream", VirtualStream, _create),
        (torch, "Event", VirtualEvent, _create_generic_event),
        (torch.cuda, "Stream", VirtualStream, _create),
        (torch.cuda, "Event", VirtualEvent, _create_event),
        (torch.cpu, "Stream", VirtualStream, _create_on_cpu),
        (torch.cpu, "Event", VirtualEvent, _create_event),
        (torch.cuda, "StreamContext", CurrentStream, current_stream_context),
        (torch.cpu, "StreamContext", CurrentStream, current_stream_context),
    ):
        yield owner, name, _class(getattr(owner, name), virtual_class, make_instance)
    for owner, name, make_virtual in HOST_COPIES:
        original = getattr(owner, name)
        yield owner, name, _method(original, make_virtual(original))
    run_backward = torch.autograd._engine_run_backward  # noqa: SLF001  # all ways to it
    replaced = _function(run_backward, _run_backward(run_backward))
    yield torch.autograd, "_engine_run_backward", replaced


def _method(original: Any, virtual: Make) -> Callable[..., Any]:
    def by_thread(self: Any, *args: Any, **kwargs: Any) -> Any:
        streams = own_streams()
        if streams is None or not streams.serves_subject:
            return original(self, *args, **kwargs)
        return virtual(streams, self, *args, **kwargs)

    return by_thread


@contextmanager
def virtual_device_modules() -> Iterator[None]:
    """Put virtual streams behind torch's names for the length of a block."""
    before: list[tuple[Any, str, Any]] = []
    try:
        for owner, name, replacement in _replacements():
            before.append((owner, name, vars(owner).get(name, _MISSING)))
            setattr(owner, name, replacement)
        yield
    finally:
        for owner, name, original in reversed(before):
            if original is _MISSING:  # it was inherited
                delattr(owner, name)
            else:
                setattr(owner, name, original)
