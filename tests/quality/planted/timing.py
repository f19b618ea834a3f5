"""Planted defects that show only with some timing, or only by chance, and their twins."""

import random
import time
from typing import ClassVar

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from syncverify.subjects.bugbank.bases.view_buckets import (
    Bucket,
    ReducesInWait,
    ViewBuckets,
)


class FallsThrough(ViewBuckets):
    """Asks whether a bucket is done, and takes unfinished values if it is not."""

    def finish(self, bucket: Bucket) -> None:
        if bucket.work is None or bucket.work.is_completed():
            super().finish(bucket)


class AsksThenWaits(ViewBuckets):
    """Correct: a rank that gets "not yet" waits."""

    def finish(self, bucket: Bucket) -> None:
        if bucket.work is not None and not bucket.work.is_completed():
            bucket.work.wait()
        super().finish(bucket)


class GivesUpAfterAThousand(ViewBuckets):
    """Polls a thousand times, with pauses, and then takes the bucket for complete."""

    waits_in_the_end = False

    def finish(self, bucket: Bucket) -> None:
        for _ in range(1000):
            if bucket.work is None or bucket.work.is_completed():
                break
            time.sleep(0.05)
        if self.waits_in_the_end or bucket.work is None:
            super().finish(bucket)
            return
        bucket.work = None
        for group in bucket.groups[1:]:
            dist.all_reduce(bucket.buffer, group=group)


class WaitsAfterAThousand(GivesUpAfterAThousand):
    """Correct: a rank that gives up polling waits."""

    waits_in_the_end = True


class GivesUpAfterAMinute(ViewBuckets):
    """Polls for a minute, and then takes the bucket for complete."""

    def finish(self, bucket: Bucket) -> None:
        began = time.monotonic()
        while bucket.work is not None and not bucket.work.is_completed():
            if time.monotonic() - began > 60:
                self.give_up(bucket)
                return
        super().finish(bucket)

    def give_up(self, bucket: Bucket) -> None:
        bucket.work = None


class RaisesAfterAMinute(GivesUpAfterAMinute):
    """Correct: a rank that gives up polling says so."""

    def give_up(self, bucket: Bucket) -> None:
        raise TimeoutError("expected a bucket to be reduced in a minute")


class IgnoresNotYet(ViewBuckets):
    """Scales on a side stream, asks whether that is done, and goes on in any case."""

    def finish(self, bucket: Bucket) -> None:
        super().finish(bucket)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            bucket.buffer.mul_(1)
        self.end(side.record_event())

    def end(self, scaled: torch.cuda.Event) -> None:
        scaled.query()


class QueriesThenWaits(IgnoresNotYet):
    """Correct: a rank that gets "not yet" waits."""

    def end(self, scaled: torch.cuda.Event) -> None:
        if not scaled.query():
            scaled.wait()


class FirstComeIsRankZero(ViewBuckets):
    """Takes the first rank in the store for rank 0, as it mostly is."""

    def bind(self) -> None:
        super().bind()
        is_first = c10d._get_default_store().add("planted/arrived", 1) == 1
        dist.broadcast(torch.ones(1), src=dist.get_rank() if is_first else 0)


class FirstComeIsFirst(ViewBuckets):
    """Correct: the first rank in the store publishes its number."""

    def bind(self) -> None:
        super().bind()
        store = c10d._get_default_store()
        if store.add("planted/arrived", 1) == 1:
            store.set("planted/first", str(dist.get_rank()))
        dist.broadcast(torch.ones(1), src=int(store.get("planted/first")))


class ReducesInRandomOrder(ReducesInWait):
    """Launches buckets in a random order: one on all ranks, and another in each run."""

    def bind(self) -> None:
        super().bind()
        store = c10d._get_default_store()
        if store.add("planted/drawn", 1) == 1:
            store.set("planted/seed", str(self.drawn_seed()))
        self.random = random.Random(int(store.get("planted/seed")))

    def drawn_seed(self) -> int:
        return random.getrandbits(32)

    def order(self) -> list[Bucket]:
        drawn = [*self.buckets]
        self.random.shuffle(drawn)
        return drawn


class ReducesInOrderOfAddresses(ReducesInRandomOrder):
    """Launches buckets in an order that depends on an address, which never comes again."""

    _kept: ClassVar[list[object]] = []

    def drawn_seed(self) -> int:
        self._kept.append(self)
        return id(self)


class ReducesInSeededOrder(ReducesInRandomOrder):
    """Correct: random, but the same every time."""

    def drawn_seed(self) -> int:
        return 0


class WaitsInRandomOrder(ViewBuckets):
    """Correct: waits for buckets in a random order, which changes nothing that is sent."""

    def wait(self) -> None:
        random.shuffle(self.buckets)
        super().wait()


class WaitsInOrderOfAddresses(ViewBuckets):
    """Correct: waits for buckets in the order of a set, which is that of their addresses."""

    def wait(self) -> None:
        self.buckets = list(set(self.buckets))
        super().wait()
