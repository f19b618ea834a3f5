"""Pairs of programs for two ranks: an order alone decides whether the first one is right."""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

# A program with the order, if `is_there`.
Program = Callable[..., object]
PROGRAMS: dict[str, Program] = {}


def edge(name: str) -> Callable[[Program], Program]:
    """Name the order that a program has, as docs/ordering.md does."""

    def add(program: Program) -> Program:
        PROGRAMS[name] = program
        return program

    return add


def on(stream: Any) -> Any:
    return torch.cuda.stream(stream)


def ones(*size: int) -> torch.Tensor:
    return torch.ones(*size, device="cuda")


def written_beside() -> tuple[Any, torch.Tensor]:
    """Return a side stream, and memory that the stream writes."""
    side, memory = torch.cuda.Stream(), ones(4)
    side.wait_stream(torch.cuda.current_stream())
    with on(side):
        memory.add_(1)
    return side, memory


@contextlib.contextmanager
def read_after() -> Iterator[Any]:
    """Read memory on the current stream after a block that may order the writing stream."""
    side, memory = written_beside()
    yield side
    memory.mul(2)


@contextlib.contextmanager
def read_on_host() -> Iterator[None]:
    """Read memory of the host after a block that may wait for the copy to it."""
    host = ones(4).to("cpu", non_blocking=True)
    yield
    host.clone()


@edge("work of one stream")
def _(*, is_there: bool) -> None:
    side, memory = written_beside()
    with on(side if is_there else torch.cuda.current_stream()):
        memory.mul(2)


@edge("host wait before later work")
def _(*, is_there: bool) -> None:
    side, memory = written_beside()
    other = torch.cuda.Stream()
    if is_there:
        side.synchronize()
    with on(other):
        memory.mul(2)


@edge("`Stream.wait_stream`")
def _(*, is_there: bool) -> None:
    with read_after() as side:
        torch.cuda.current_stream().wait_stream(
            side if is_there else torch.cuda.Stream()
        )


@edge("`Event.wait`")
def _(*, is_there: bool) -> None:
    with read_after() as side:
        event = torch.cuda.Event()
        if is_there:
            event.record(side)
        event.wait()


@edge("`Stream.synchronize`")
def _(*, is_there: bool) -> None:
    with read_after() as side:
        (side if is_there else torch.cuda.current_stream()).synchronize()


@edge("`Event.synchronize`")
def _(*, is_there: bool) -> None:
    with read_after() as side:
        (side if is_there else torch.cuda.current_stream()).record_event().synchronize()


@edge("`Event.query` is true")
def _(*, is_there: bool) -> None:
    with read_after() as side:
        event = side.record_event()
        while is_there and not event.query():
            pass


@edge("`Stream.query` is true")
def _(*, is_there: bool) -> None:
    with read_after() as side:
        while is_there and not side.query():
            pass


@edge("`torch.cuda.synchronize`")
def _(*, is_there: bool) -> None:
    with read_after():
        (torch.cuda if is_there else torch.cpu).synchronize()


@edge("operator that needs a value")
def _(*, is_there: bool) -> None:
    with read_after() as side, on(side):
        value = ones(4).sum()
        if is_there:
            value.item()


@edge("blocking `copy_`")
def _(*, is_there: bool) -> None:
    pinned = torch.zeros(4, pin_memory=True)
    with read_after() as side, on(side):
        pinned.copy_(ones(4), non_blocking=not is_there)


@edge("`cpu()`, blocking `to`")
def _(*, is_there: bool) -> None:
    with read_after() as side, on(side):
        ones(4).to("cpu", non_blocking=not is_there)


@edge("`tolist()`")
def _(*, is_there: bool) -> None:
    with read_after() as side, on(side):
        ones(4 if is_there else 0).tolist()


@edge("work of the host before later work")
def _(*, is_there: bool) -> None:
    pinned, device = torch.zeros(4, pin_memory=True), ones(4)
    if is_there:
        pinned.fill_(2)
    device.copy_(pinned, non_blocking=True)
    if not is_there:
        pinned.fill_(2)


@edge("collective after its issuing stream")
def _(*, is_there: bool) -> None:
    side, memory = written_beside()
    with on(side if is_there else torch.cuda.current_stream()):
        dist.all_reduce(memory, async_op=True).wait()


@edge("collectives of one communicator")
def _(*, is_there: bool) -> None:
    group, memory = dist.new_group(), ones(4)
    dist.all_reduce(memory, async_op=True)
    dist.all_reduce(memory, group=None if is_there else group, async_op=True).wait()
    memory.mul(2)


@edge("synchronous collective")
def _(*, is_there: bool) -> None:
    memory = ones(4)
    dist.all_reduce(memory, async_op=not is_there)
    memory.mul(2)


def _over_another_rank(meet: Callable[[], object], *, passes_on: bool) -> None:
    """Rank 0 writes beside, and rank 1 may hear of it before both of them meet."""
    group, flag = dist.new_group(), ones(1)
    with read_after() as side:
        with on(side):
            work = dist.all_reduce(flag, group=group, async_op=True)
        if dist.get_rank() and passes_on:
            work.wait()
        if not dist.get_rank() and not passes_on:
            torch.cuda.Stream().wait_stream(torch.cuda.current_stream())
        meet()
        if dist.get_rank():
            torch.cuda.synchronize()


@edge("collective after the ranks that send")
def _(*, is_there: bool) -> None:
    _over_another_rank(lambda: dist.all_reduce(ones(1)), passes_on=is_there)


@edge("message after its sender")
def _(*, is_there: bool) -> None:
    def meet() -> None:
        receives = (dist.get_rank() == 0) == is_there
        (dist.recv if receives else dist.send)(ones(1), 1 - dist.get_rank())

    _over_another_rank(meet, passes_on=True)


@edge("`Work.wait`")
def _(*, is_there: bool) -> None:
    memory = ones(4)
    work = dist.all_reduce(memory, async_op=True)
    if is_there:
        work.wait()
    memory.mul(2)


@edge("`Work.wait` with a timeout")
def _(*, is_there: bool) -> None:
    with read_on_host():
        work = dist.all_reduce(ones(1), async_op=True)
        work.wait(*[timedelta(seconds=9)] * is_there)


@edge("wait for a barrier")
def _(*, is_there: bool) -> None:
    with read_on_host():
        work = dist.barrier(async_op=True)
        (work.wait if is_there else work.synchronize)()


@edge("`Work.is_completed` is true")
def _(*, is_there: bool) -> None:
    memory = ones(4)
    work = dist.all_reduce(memory, async_op=True)
    while is_there and not work.is_completed():
        pass
    memory.mul(2)


@edge("wait for a collective of gloo")
def _(*, is_there: bool) -> None:
    group, memory = dist.new_group(backend="gloo"), torch.ones(4)
    work = dist.all_reduce(memory, group=group, async_op=True)
    if is_there:
        work.wait()
    memory.mul(2)


@edge("`Future.wait`")
def _(*, is_there: bool) -> None:
    memory = ones(4)
    future = dist.all_reduce(memory, async_op=True).get_future()
    (future.wait if is_there else future.value)()
    memory.mul(2)


@edge("callback after its future")
def _(*, is_there: bool) -> None:
    memory, copy = ones(4), ones(4)
    future = dist.all_reduce(memory, async_op=True).get_future()
    if is_there:
        future.then(lambda _: copy.copy_(memory)).wait()
    else:
        copy.copy_(memory)


@edge("`Future.wait` after a callback")
def _(*, is_there: bool) -> None:
    memory, copy = ones(4), ones(4)
    future = dist.all_reduce(memory, async_op=True).get_future()
    copied = future.then(lambda _: copy.copy_(memory))
    (copied if is_there else future).wait()
    copy.mul(2)


@edge("`get_future` of nccl2")
def _(*, is_there: bool) -> None:
    group, memory = dist.new_group(backend="nccl2"), ones(4)
    future = dist.all_reduce(memory, group=group, async_op=True).get_future()
    with on(torch.cuda.Stream()):
        (future.wait if is_there else future.value)()
        memory.mul(2)


@edge("backward after its caller")
def _(*, is_there: bool) -> None:
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    leaf, gradient = nn.Parameter(ones(4)), ones(4)
    for each in (side, other):
        each.wait_stream(torch.cuda.current_stream())
    with on(side):
        output = leaf * 2
    with on(torch.cuda.current_stream() if is_there else other):
        gradient.add_(1)
    output.backward(gradient)


@edge("node after the node before it")
def _(*, is_there: bool) -> None:
    side, leaf = torch.cuda.Stream(), nn.Parameter(ones(4))
    first = leaf * 2
    side.wait_stream(torch.cuda.current_stream())
    cut = first if is_there else first.detach().requires_grad_()
    with on(side):
        (cut * ones(4)).sum().backward()
    if not is_there:
        first.backward(cut.grad)


@edge("sum of two gradients")
def _(*, is_there: bool) -> None:
    sides, total = (torch.cuda.Stream(), torch.cuda.Stream()), ones(4)
    leaf = nn.Parameter(ones(4))
    first = leaf * 2
    parts = []
    for side in sides:
        side.wait_stream(torch.cuda.current_stream())
        with on(side):
            part = first if is_there else first.detach().requires_grad_()
            loss = (part * total).sum()
            parts.append((part, loss))
    for _, loss in parts:
        torch.cuda.current_stream().wait_stream(sides[0])
        torch.cuda.current_stream().wait_stream(sides[1])
        if not is_there:
            with on(sides[0]):
                loss.backward()
    if is_there:
        (parts[0][1] + parts[1][1]).backward()
    else:
        first.backward(parts[0][0].grad + parts[1][0].grad)


@edge("caller after the leaves")
def _(*, is_there: bool) -> None:
    side, leaf = torch.cuda.Stream(), nn.Parameter(ones(4))
    side.wait_stream(torch.cuda.current_stream())
    with on(side):
        loss = (leaf * 2).sum()
    with on(torch.cuda.current_stream() if is_there else side):
        loss.backward()
    assert leaf.grad is not None
    leaf.grad.mul(2)


@edge("caller after a kept leaf node")
def _(*, is_there: bool) -> None:
    leaf = nn.Parameter(ones(4))
    with read_after() as side:
        with on(side if is_there else torch.cuda.current_stream()):
            node = leaf.expand_as(leaf).grad_fn.next_functions[0][0]
        with on(side):
            leaf.detach().clone()
        (leaf * 2).sum().backward()
    assert node is not None


@edge("reducer of DistributedDataParallel")
def _(*, is_there: bool) -> None:
    layers = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).cuda()
    model = nn.parallel.DistributedDataParallel(
        layers, bucket_cap_mb=1e-4, gradient_as_bucket_view=True
    )

    def read(_: object) -> None:
        gradient = layers[1].weight.grad
        assert gradient is not None
        gradient.mul(2)

    for _ in range(2):  # the reducer makes its buckets anew after the first
        handle = None if is_there else layers[0].weight.register_hook(read)
        model(ones(1, 8)).sum().backward()
        read(None)
        if handle is not None:
            handle.remove()


@edge("future that the program completes")
def _(*, is_there: bool) -> None:
    side, memory = written_beside()
    future: Any = torch.futures.Future(devices=[memory.device])
    with on(side if is_there else torch.cuda.current_stream()):
        future.set_result(memory)
    future.wait().mul(2)


@edge("bytes of the device for the host")
def _(*, is_there: bool) -> None:
    side, memory = written_beside()
    other = torch.cuda.Stream()
    with on(side):
        if is_there:
            torch.save(memory, io.BytesIO())
    with on(other):
        memory.mul(2)


@edge("wait of a thread that was joined")
def _(*, is_there: bool) -> None:
    with read_on_host():
        event = torch.cuda.current_stream().record_event()
        if is_there:
            thread = threading.Thread(target=event.synchronize)
            thread.start()
            thread.join()


@edge("`record_stream` before reuse")
def _(*, is_there: bool) -> None:
    side, memory = written_beside()
    if is_there:
        memory.record_stream(side)
    del memory
    ones(4)  # may get the memory
