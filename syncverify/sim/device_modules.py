"""Virtual streams behind torch's own names, for the length of a run.

Each replaced name asks which thread calls: a rank's gets virtual streams, any other what
torch has there. What is replaced is looked up on the modules at each call, as
`torch.cuda.Stream()` does; a function that was imported by name before the run
(`from torch.cuda import current_stream`) stays what it was.

Blocking copies to the host
    On CPU tensors, "the host" and "the device" are the same. `Tensor.cpu()`,
    `Tensor.tolist()` and `Tensor.to("cpu")` with a string are taken for copies to the host.
    `Tensor.to(device)` with a `torch.device` is not, as it may be the tensor's own device,
    and `copy_` into a tensor that is meant to lie on the host cannot be told from any
    other `copy_`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from typing_extensions import override

from syncverify.sim.host_copies import HOST_COPIES
from syncverify.sim.streams import RankStreams, VirtualEvent, VirtualStream, own_streams

_MISSING = object()
Make = Callable[..., Any]


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

    @override
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (cls.original, cls.virtual))


def _class(original: type, virtual: type, make: Make) -> type:
    parts = {"original": original, "virtual": virtual, "make": staticmethod(make)}
    return _ByThread(original.__name__, (), parts)


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


def _context(
    _: RankStreams, stream: VirtualStream | None
) -> AbstractContextManager[Any]:
    return nullcontext() if stream is None else _Current(stream)


class _Current(AbstractContextManager[None]):
    """What `torch.cuda.stream()` returns: it yields nothing, and may be used again."""

    def __init__(self, stream: VirtualStream) -> None:
        self.stream = stream

    @override
    def __enter__(self) -> None:
        self.stream.__enter__()

    @override
    def __exit__(self, *_: object) -> None:
        self.stream.__exit__()


def _set(streams: RankStreams, stream: VirtualStream | None) -> None:
    if stream is not None:
        streams.engine.set_current(stream)


def _run_backward(original: Callable[..., Any]) -> Make:
    def virtual(
        streams: RankStreams, outputs: Any, gradients: Any, retain: Any,
        create: Any, inputs: Any = (), *more: Any, **options: Any,
    ) -> Any:  # fmt: skip
        settings = (gradients, retain, create, inputs, *more)
        return streams.engine.run_backward(
            lambda: original(outputs, *settings, **options),
            outputs,
            inputs,
        )

    return virtual


_FUNCTIONS: dict[str, Make] = {
    "current_device": lambda _: 0,
    "current_stream": lambda streams, _=None: streams.current(),
    "default_stream": lambda streams, _=None: streams.default,
    "set_stream": _set,
    "stream": _context,
    "synchronize": lambda streams, _=None: streams.synchronize(),
}


def _replacements() -> Iterator[tuple[Any, str, Any]]:
    """Yield whose attribute becomes what."""
    for module, names in (
        (torch.cuda, _FUNCTIONS),
        (torch.cpu, {"current_stream", "stream", "synchronize"}),
        (torch.accelerator, {"current_stream", "set_stream", "synchronize"}),
    ):
        for name in sorted(names):
            yield module, name, _function(getattr(module, name), _FUNCTIONS[name])
    for owner, name, virtual, make in (
        (torch, "Stream", VirtualStream, _create),
        (torch, "Event", VirtualEvent, _create_generic_event),
        (torch.cuda, "Stream", VirtualStream, _create),
        (torch.cuda, "Event", VirtualEvent, _create_event),
        (torch.cpu, "Stream", VirtualStream, _create_on_cpu),
        (torch.cpu, "Event", VirtualEvent, _create_event),
        (torch.cuda, "StreamContext", _Current, _context),
        (torch.cpu, "StreamContext", _Current, _context),
    ):
        yield owner, name, _class(getattr(owner, name), virtual, make)
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
