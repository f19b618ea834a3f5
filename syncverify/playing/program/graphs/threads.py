"""Backwards on threads that the caller starts."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from syncverify.playing.program.graphs.losses import Losses


def on_threads(losses: Losses) -> None:
    """Run the backward of each half of the model on another thread.

    One thread after the other: a simulated rank must not depend on timing.
    """
    names = [*losses.terms]
    for part in (losses.without({*names[1::2]}), losses.without({*names[0::2]})):
        if part.terms:
            _run_on_thread(part)


def _run_on_thread(losses: Losses) -> None:
    errors: list[BaseException] = []
    as_rank = losses.as_rank()
    stream = _own_stream(next(iter(losses.terms.values())).device)

    def run() -> None:
        try:
            with as_rank(), stream:
                losses.total().backward()
        except BaseException as error:  # noqa: BLE001  # raised again by the caller
            errors.append(error)

    thread = threading.Thread(target=run, name=threading.current_thread().name)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def _own_stream(device: torch.device) -> AbstractContextManager[Any]:
    """Return the context of the stream that is current now, for use on another thread.

    A new thread has device 0 and its default stream. A backward there would order that
    stream, and not the caller's, after the gradients. Simulated ranks carry theirs.
    """
    if device.type in {"cpu", "meta"}:
        return nullcontext()
    module: Any = torch.get_device_module(device)
    context: AbstractContextManager[Any] = module.stream(module.current_stream(device))
    return context
