"""Backwards on other threads, with a stand-in for the streams of a GPU."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch

from syncverify.program.graphs.losses import Losses
from syncverify.program.graphs.threads import on_threads


class Streams:
    """Stands for `torch.cuda`: each thread has a current stream, at first the default one."""

    def __init__(self) -> None:
        self._own = threading.local()

    def current_stream(self, _: object = None) -> str:
        return getattr(self._own, "stream", "default")

    @contextmanager
    def stream(self, stream: str) -> Iterator[None]:
        before = self.current_stream()
        self._own.stream = stream
        yield
        self._own.stream = before


class Term:
    device = torch.device("cuda", 1)

    def __init__(self, streams: Streams, streams_of_calls: list[str]) -> None:
        self._streams, self._streams_of_calls = streams, streams_of_calls

    def backward(self) -> None:
        self._streams_of_calls.append(self._streams.current_stream())


def test_a_backward_on_a_thread_is_on_the_stream_of_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    streams, streams_of_calls = Streams(), list[str]()
    monkeypatch.setattr(torch, "get_device_module", lambda _: streams)
    terms: Any = {name: Term(streams, streams_of_calls) for name in ("v", "w")}
    with streams.stream("side"):
        on_threads(Losses(terms, {}, lambda: nullcontext))
    assert streams_of_calls == ["side", "side"]
    assert streams.current_stream() == "default"


def test_a_backward_on_a_cpu_needs_no_stream() -> None:
    leaf = torch.ones(2, requires_grad=True)
    on_threads(Losses({"w": leaf.sum()}, {"w": leaf}, lambda: nullcontext))
    assert leaf.grad is not None
    assert torch.equal(leaf.grad, torch.ones(2))
