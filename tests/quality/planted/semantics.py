"""Planted defects that show on one of NCCL and gloo only, and of waits for futures."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from syncverify.scenario.contract import Capabilities
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.bugbank.bases.view_buckets import Bucket, ViewBuckets
from tests.quality.planted.planted import VALUE, planted, right, training


class RefillsAfterALaterWait(ViewBuckets):
    """Waits for the second of two collectives, then overwrites the input of the first.

    NCCL runs the collectives of a communicator one after the other, so the first one is
    over as well. gloo runs them side by side.
    """

    def wait(self) -> None:
        super().wait()
        sent, received = torch.ones(1), torch.empty(dist.get_world_size())
        first = dist.all_gather_single(received, sent, async_op=True)
        dist.all_reduce(torch.ones(1), async_op=True).wait()
        sent.zero_()
        first.wait()


class RefillsOnNccl(RefillsAfterALaterWait):
    """Correct: says that it runs on NCCL only."""

    capabilities = Capabilities(varying_accumulations=True, needs_nccl=True)


class RefillsInOrder(ViewBuckets):
    """Correct: waits for a collective before its input is overwritten."""

    def wait(self) -> None:
        super().wait()
        sent, received = torch.ones(1), torch.empty(dist.get_world_size())
        first = dist.all_gather_single(received, sent, async_op=True)
        second = dist.all_reduce(torch.ones(1), async_op=True)
        first.wait()
        sent.zero_()
        second.wait()


def sums(gradient: torch.Tensor) -> Iterator[tuple[torch.Tensor, dist.ProcessGroup]]:
    """Yield the local elements of a gradient with the group of each axis to sum over."""
    if isinstance(gradient, DTensor):
        for axis, placement in enumerate(gradient.placements):
            if placement.is_replicate():
                group = gradient.device_mesh.get_group(axis)
                yield gradient.to_local().detach(), group


class SendsOnWhatComes(PlainGrads):
    """Reduces to one rank, which sends the sum on; waits for the second collective only."""

    def reduce(self, gradient: torch.Tensor) -> None:
        for local, group in sums(gradient):
            root = dist.get_global_rank(group, 0)
            dist.reduce(local, root, group=group, async_op=True)
            sent = dist.broadcast(local, root, group=group, async_op=True)
            assert sent is not None
            self.await_sent(sent)

    def await_sent(self, work: dist.Work) -> None:
        """Wait for the sum that is sent on."""
        work.wait()


class SendsOnWhatComesOnNccl(SendsOnWhatComes):
    """Correct: says that it runs on NCCL only."""

    capabilities = Capabilities(needs_nccl=True)


class SendsOnAndForgets(SendsOnWhatComesOnNccl):
    """Waits for neither, which is wrong on NCCL too."""

    def await_sent(self, work: dist.Work) -> None:
        """Forget it."""


class SendsOnParts(PlainGrads):
    """Correct on NCCL: scatters sums and gathers them, and waits for the second only."""

    capabilities = Capabilities(needs_nccl=True)

    def reduce(self, gradient: torch.Tensor) -> None:
        for local, group in sums(gradient):
            size = dist.get_world_size(group)
            flat = local.new_zeros(-(-local.numel() // size) * size)
            flat[: local.numel()].copy_(local.view(-1))
            part = flat.new_empty(flat.numel() // size)
            dist.reduce_scatter_single(part, flat, group=group, async_op=True)
            gathered = dist.all_gather_single(flat, part, group=group, async_op=True)
            assert gathered is not None
            gathered.wait()
            local.view(-1).copy_(flat[: local.numel()])


class TakesReturnForDone(ViewBuckets):
    """Reduces on a side stream, and takes the call's return for its end, as on gloo."""

    def launch(self, bucket: Bucket) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for group in bucket.groups:
                dist.all_reduce(bucket.buffer, group=group)


class SendsOnPartsOnGpus(SendsOnParts):
    """Correct: is for GPUs, and so for NCCL, whether it says that or not."""

    capabilities = Capabilities(device="cuda")


# Subjects that wait for futures of collectives, or forget to.


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
