"""Hooks of the user that write `.grad`, registered at any time, come before the reduction."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from syncverify.synchronizer import (
    GradientSynchronizer,
    HookBucket,
    InFlightWriteError,
    SynchronizerConfig,
)
from tests.programs import parameter


def clamp(parameter: torch.Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.clamp_(max=1)  # of a sum, it is another number


@pytest.mark.parametrize("moment", ["before bind", "after bind", "after a step"])
def test_hook_that_writes_comes_before_the_reduction(ranks, moment):
    def program(rank: int) -> list[Any]:
        mesh = init_device_mesh("cpu", (2,))
        parameters = [parameter(mesh) for _ in range(2)]

        def register() -> None:
            for each in parameters:
                each.register_post_accumulate_grad_hook(clamp)

        synchronizer = GradientSynchronizer([parameters], 1, 1)
        found = []
        if moment == "before bind":
            register()
        synchronizer.bind()
        for step in range(3):
            if (moment, step) in {("after bind", 0), ("after a step", 1)}:
                register()
            sum(each.to_local().sum() * (rank + 1) for each in parameters).backward()
            synchronizer.wait()
            found.append([each.grad.to_local()[0].item() for each in parameters])
            synchronizer.zero_grad()
        synchronizer.unbind()
        return found

    first = [3, 3] if moment == "after a step" else [2, 2]
    assert ranks.run(2, program) == [[first, [2, 2], [2, 2]]] * 2


def test_a_hook_for_one_backward_delays_no_launch_to_its_end(ranks):
    """Such a hook comes after ours each time; seen once, it no longer costs overlap."""

    def program(rank: int) -> list[str]:
        mesh = init_device_mesh("cpu", (2,))
        second, first = parameters = [parameter(mesh) for _ in range(2)]
        events: list[str] = []

        def reduce(bucket: HookBucket) -> Any:
            events.append(f"launch {bucket.names[0]}")
            work = dist.all_reduce(bucket.buffer, group=bucket.group, async_op=True)
            return work.get_future().then(lambda _: bucket.buffer)

        synchronizer = GradientSynchronizer(
            [[second], [first]],
            1,
            1,
            parameter_names={second: "second", first: "first"},
            config=SynchronizerConfig(comm_hook=reduce, rebuild=False),
        )
        with synchronizer:
            for step in range(4):
                handles = [
                    each.register_post_accumulate_grad_hook(clamp)
                    for each in parameters
                ]
                handles.append(
                    second.register_hook(lambda _: events.append("arrival of second"))
                )
                losses = [each.to_local().sum() * (rank + 1) for each in parameters]
                sum(losses).backward()
                synchronizer.wait()
                assert [e.grad.to_local()[0] for e in parameters] == [2, 2], step
                for handle in handles:
                    handle.remove()
                synchronizer.zero_grad()
        return events

    for events in ranks.run(2, program):
        assert events[-3:] == ["launch first", "arrival of second", "launch second"]


def test_hook_of_a_node_that_writes_is_refused(ranks):
    def program(rank: int) -> None:
        mesh = init_device_mesh("cpu", (2,))
        only = parameter(mesh)
        node = torch.autograd.graph.get_gradient_edge(only).node
        node.register_hook(lambda *_: clamp(only))
        with GradientSynchronizer([[only]], 1, 1) as synchronizer:
            (only.to_local() * (rank + 1)).sum().backward()
            synchronizer.wait()  # launched as backward ended: the first step learns
            assert only.grad.to_local()[0] == 2
            synchronizer.zero_grad()
            (only.to_local() * (rank + 1)).sum().backward()
            with pytest.raises(InFlightWriteError):
                synchronizer.wait()

    ranks.run(2, program)
