"""Subjects that wait for futures of collectives, or forget to."""

import threading
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.scenario.contract import Capabilities
from tests.quality.planted.planted import VALUE, planted, right, training

TWO_STEPS = training(shape=(3,), accumulations=(1, 1))
FAILING = replace(TWO_STEPS, events=("plain", "failing_collectives"))


class WaitsForTheFuture(ViewBuckets):
    """Correct: reduces on a side stream, and waits for the future of each reduction."""

    def bind(self) -> None:
        super().bind()
        self.side = torch.cuda.Stream()
        self.futures: list[torch.futures.Future[Any]] = []

    def launch(self, bucket: Bucket) -> None:
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            for group in bucket.groups:
                work = dist.all_reduce(bucket.buffer, group=group, async_op=True)
                if group is bucket.groups[-1]:
                    self.futures.append(self.future_of(work, bucket))
                else:
                    work.wait()

    def future_of(self, work: dist.Work, bucket: Bucket) -> torch.futures.Future[Any]:
        return work.get_future()

    def wait(self) -> None:
        torch.futures.wait_all(self.futures)
        self.futures = []
        torch.cuda.current_stream().wait_stream(self.side)


class JoinsTheStreamAlone(WaitsForTheFuture):
    """Takes a future for a wait of the stream on which it was made."""

    def wait(self) -> None:
        self.futures = []
        super().wait()


class WaitsForTheCallback(WaitsForTheFuture):
    """Correct: halves the sum in a callback, doubles it, and waits for the callback."""

    def future_of(self, work: dist.Work, bucket: Bucket) -> torch.futures.Future[Any]:
        return work.get_future().then(lambda _: bucket.buffer.mul_(2).div_(2))


class ForgetsTheCallback(WaitsForTheCallback):
    """Waits for the collective, and not for the callback that writes to its result."""

    def future_of(self, work: dist.Work, bucket: Bucket) -> torch.futures.Future[Any]:
        super().future_of(work, bucket)
        return work.get_future()


@planted((VALUE, "failure_hidden"), scenarios=(FAILING,), elsewhere=(TWO_STEPS,))
class IgnoresTheValue(WaitsForTheFuture):
    """The callback never asks how the collective ended, so an error is lost."""

    capabilities = Capabilities(features=frozenset({"event=failing_collectives"}))

    def future_of(self, work: dist.Work, bucket: Bucket) -> torch.futures.Future[Any]:
        return work.get_future().then(lambda _: bucket.buffer)


@right(FAILING)
class AsksForTheValue(IgnoresTheValue):
    """Correct: the callback asks for the sums, and raises if there are none."""

    def future_of(self, work: dist.Work, bucket: Bucket) -> torch.futures.Future[Any]:
        return work.get_future().then(lambda done: done.value()[0])


class WaitsOnTwoStreams(WaitsForTheFuture):
    """Correct: the side stream waits for a collective, and the caller's stream later on."""

    def bind(self) -> None:
        super().bind()
        self.works: list[dist.Work] = []

    def launch(self, bucket: Bucket) -> None:
        with torch.cuda.stream(self.side):
            self.side.wait_stream(torch.cuda.default_stream())
            for group in bucket.groups:
                work = dist.all_reduce(bucket.buffer, group=group, async_op=True)
                work.wait()
                self.works.append(work)

    def wait(self) -> None:
        for work in self.works:
            work.wait()
        self.works = []


class WaitsForAnEvent(WaitsForTheFuture):
    """Correct on real processes: a callback sets an event that the host waits for."""

    def future_of(self, work: dist.Work, bucket: Bucket) -> torch.futures.Future[Any]:
        done, future = threading.Event(), work.get_future()
        called = future.then(lambda _: done.set())
        done.wait()
        return called


class WaitsForAnEventForAWhile(WaitsForAnEvent):
    """Waits for an event that a callback sets, and raises after 10 ms without it."""

    def future_of(self, work: dist.Work, bucket: Bucket) -> torch.futures.Future[Any]:
        done, future = threading.Event(), work.get_future()
        called = future.then(lambda _: done.set())
        if not done.wait(0.01):
            raise RuntimeError("the callback did not come")
        return called
