"""Work of the host: copies, threads and orders that come from it."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from typing_extensions import override

from studies.redteam.bases import SumsOver, gathered, local_of, reduce_groups_of
from studies.redteam.program import right
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.bugbank.bases.side_streams import SideStreams
from syncverify.subjects.bugbank.bases.view_buckets import (
    Bucket,
    ReducesInWait,
    ViewBuckets,
)


@right(since="`cpu()` waits for the device, and the host adds up in order")
class AddsOnTheHost(SumsOver):
    """Gathered parts are copied to the host and added up there."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        total = torch.zeros(part.shape, dtype=torch.float64, device="cpu")
        for each in gathered(part.contiguous(), group):
            total += each.cpu()
        part.copy_(total)


@right(since='the copy to a `torch.device` blocks like one to `"cpu"`')
class NamesTheHostByDevice(SumsOver):
    """Gradients are staged by `.to(torch.device("cpu"))`."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        dist.all_reduce(part, group=group)
        staged = part.to(torch.device("cpu"), copy=True)
        staged.mul_(2).div_(2)
        part.copy_(staged)


@right(since="the stream is synchronized before the host reads")
class StagesInPinnedMemory(SumsOver):
    """Sums pass through pinned memory, with `non_blocking` and a wait of the host."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        dist.all_reduce(part, group=group)
        pinned = torch.empty(part.shape, dtype=part.dtype, pin_memory=True)
        pinned.copy_(part, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        pinned.mul_(2).div_(2)
        part.copy_(pinned)


@right(since="`numpy()` shares memory that the host may read")
class AddsWithNumpy(SumsOver):
    """Parts are added up as arrays."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        parts = gathered(part.contiguous(), group)
        arrays = [each.double().cpu().numpy() for each in parts]
        part.copy_(torch.as_tensor(sum(arrays)))


@right(since="the caller waits for the thread")
class WaitsOnAThread(ReducesInWait):
    """A worker thread waits for the works, and the caller waits for the thread."""

    @override
    def wait(self) -> None:
        for bucket in self.order():
            self.launch(bucket)
        worker = threading.Thread(target=self.finish_all)
        worker.start()
        worker.join()
        torch.cuda.synchronize()

    def finish_all(self) -> None:
        """Finish all buckets."""
        for bucket in self.buckets:
            self.finish(bucket)


@right(since="a queue hands buckets over, and the caller waits for the thread")
class LaunchesOnAThread(ViewBuckets):
    """Hooks put buckets into a queue, and a worker thread launches them in order."""

    overlaps_backward = False

    @override
    def bind(self) -> None:
        super().bind()
        self.ready: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self.worker = threading.Thread(target=self.serve, daemon=True)
        self.worker.start()

    def serve(self) -> None:
        """Run what comes, until None comes."""
        while (run := self.ready.get()) is not None:
            run()
            self.ready.task_done()

    @override
    def launch(self, bucket: Bucket) -> None:
        event = torch.cuda.Event()
        event.record()
        launch = super().launch

        def run() -> None:
            event.wait()
            launch(bucket)

        self.ready.put(run)

    @override
    def wait(self) -> None:
        self.ready.join()
        super().wait()

    @override
    def unbind(self) -> None:
        self.ready.put(None)
        self.worker.join()
        super().unbind()


@right(since="the pool's results are awaited one after the other")
class ReducesInAPool(PlainGrads):
    """An executor with one thread runs the reductions."""

    @override
    def wait(self) -> None:
        with ThreadPoolExecutor(1) as pool:
            for parameter in self.parameters:
                if parameter.grad is not None:
                    pool.submit(self.reduce, parameter.grad).result()
        torch.cuda.synchronize()


@right(since="buckets do not overlap, so their local order is free")
class ZeroesInTheOrderOfASet(ViewBuckets):
    """Buckets are cleared in the order of a set."""

    @override
    def zero_grad(self) -> None:
        for bucket in {*self.buckets}:
            bucket.counts.clear()
            bucket.buffer.zero_()


@right(since="gradients do not overlap, so their local order is free")
class DropsInTheOrderOfASet(PlainGrads):
    """Gradients are scaled back and forth in the order of a set, then reduced in a list's."""

    @override
    def wait(self) -> None:
        for parameter in {*self.parameters}:
            if parameter.grad is not None:
                local_of(parameter.grad).mul_(2).div_(2)
        super().wait()


@right(since="ranks agree on an order before they use it")
class AgreesOnAnOrder(PlainGrads):
    """Rank 0 says in which order parameters are reduced."""

    @override
    def bind(self) -> None:
        order = [*range(len(self.parameters))]
        chosen_order = [order[::-1] if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(chosen_order, src=0)
        assert chosen_order[0] is not None
        self.parameters = [self.parameters[index] for index in chosen_order[0]]


@right(since="the copy is finished before its memory is freed")
class ResizesBuffers(SideStreams):
    """Buffers of a step are freed by `resize_` when the side stream is done with them."""

    @override
    def launch(self, bucket: Bucket) -> None:
        copy = bucket.buffer.clone()
        self.fork()
        with torch.cuda.stream(self.comm):
            for group in bucket.groups:
                dist.all_reduce(copy, group=group)
            bucket.buffer.copy_(copy)
        self.comm.synchronize()
        copy.untyped_storage().resize_(0)


@right(since="hooks are removed, and weak references keep nothing alive")
class HooksNodes(PlainGrads):
    """Hooks sit on the nodes that accumulate gradients, and are removed in the end."""

    @override
    def bind(self) -> None:
        self.nodes = []
        self.counts = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters:
            node = torch.autograd.graph.get_gradient_edge(parameter).node
            self.nodes.append(node)
            self.handles.append(node.register_hook(self.counter(parameter)))

    def counter(self, parameter: nn.Parameter) -> Callable[..., None]:
        """Return a hook that counts."""

        def count(*_: object) -> None:
            self.counts[parameter] += 1

        return count

    @override
    def unbind(self) -> None:
        super().unbind()
        self.nodes.clear()


@right(since="parameters that share groups share the answer")
class ReducesGroupsInThreads(PlainGrads):
    """Reductions over one group after the other, each by a thread that is joined."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        for group in reduce_groups_of(gradient):
            reduce = threading.Thread(
                target=dist.all_reduce,
                args=(local_of(gradient),),
                kwargs={"group": group},
            )
            torch.cuda.synchronize()
            reduce.start()
            reduce.join()
            torch.cuda.synchronize()
