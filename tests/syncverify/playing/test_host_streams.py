"""Streams of subjects on backends where all work runs at once."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
import torch.distributed as dist

from syncverify.errors import EnvironmentNotSupportedError, UsageError
from syncverify.playing.fake import FakeBackend
from syncverify.playing.gloo import GlooBackend
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.subject import resolve
from tests.programs import one_parameter

SCENARIO = one_parameter(2, "p", (3,))
BACKENDS = [pytest.param(GlooBackend, marks=pytest.mark.long), FakeBackend]


class OnAStream(PlainGrads):
    """Reduces on a side stream, and uses most of what streams offer."""

    def bind(self) -> None:
        self.stream = torch.cuda.Stream(priority=-1)
        self.done = torch.cuda.Event()
        assert torch.ones(2).pin_memory().tolist() == [1, 1]

    def wait(self) -> None:
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            assert torch.cuda.current_stream() == self.stream
            for each in self.parameters:
                local = each.grad.to_local()
                local.record_stream(self.stream)
                dist.all_reduce(local)
            self.done.record()
        assert torch.cuda.current_stream() == torch.cuda.default_stream()
        torch.cuda.current_stream().wait_event(self.done)
        torch.cuda.synchronize()
        assert self.done.query()


class OnAnImportedStream(OnAStream):
    """Has taken a name before the run, as modules do."""

    kind = torch.cuda.Stream

    def bind(self) -> None:
        super().bind()
        self.stream = self.kind()


class AsksForADevice(OnAStream):
    def wait(self) -> None:
        with suppress(Exception):
            torch.zeros(1, device="cuda")
        super().wait()


class AsksForAGraph(OnAStream):
    def bind(self) -> None:
        super().bind()
        try:
            torch.cuda.CUDAGraph()
        except Exception as error:
            raise ValueError("no graph") from error


@pytest.mark.parametrize("subject", [OnAStream, OnAnImportedStream])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_subject_that_takes_streams_is_played(
    backend: Callable[[], Any], subject: type[Any]
) -> None:
    opened = backend()
    try:
        run = opened.run(SCENARIO, resolve(subject))
    finally:
        opened.close()
    assert run.fault is None


@pytest.mark.parametrize(
    ("subject", "feature"),
    [(AsksForADevice, "CUDA devices"), (AsksForAGraph, "CUDA graphs")],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_needs_a_gpu_is_refused_whatever_the_subject_does(
    backend: Callable[[], Any], subject: type[Any], feature: str
) -> None:
    opened = backend()
    try:
        with pytest.raises(UsageError) as caught:
            opened.run(SCENARIO, resolve(subject))
    finally:
        opened.close()
    assert str(caught.value).startswith(
        f"the {opened.name} backend does not simulate {feature}"
    )


def test_a_thread_of_a_rank_is_refused_where_ranks_are_threads() -> None:
    class OnAThread(OnAStream):
        def bind(self) -> None:
            thread = threading.Thread(target=self.bind_quietly)
            thread.start()
            thread.join()

        def bind_quietly(self) -> None:
            with suppress(SystemExit):
                super().bind()

    with pytest.raises(EnvironmentNotSupportedError) as caught:
        FakeBackend().run(SCENARIO, resolve(OnAThread))
    assert "threads that use CUDA beside their rank" in str(caught.value)
