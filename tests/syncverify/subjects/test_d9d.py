"""Subjects that take streams from `torch.cuda` by name run on CPU as they are."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from syncverify import verify
from syncverify.command.verification.verify import PropertyViolation
from syncverify.playing.choice import limits_of, open_backend
from syncverify.scenario.contract import Capabilities
from syncverify.subjects.subject import Subject


class OneBucketEach:
    """The simplest synchronizer with a separate stream, written for CUDA."""

    waits_for = staticmethod(lambda: [torch.cuda.current_stream()])

    def __init__(self, groups: list[list[nn.Parameter]], _: float, count: int) -> None:
        self.parameters = [p for group in groups for p in group if p.requires_grad]
        self.count, self.hooks = count, list[Any]()

    def bind(self) -> None:
        self.stream = torch.cuda.Stream(priority=-1)
        self.zero_grad()
        self.hooks = [
            parameter.register_post_accumulate_grad_hook(self.reduce)
            for parameter in self.parameters
        ]

    def reduce(self, parameter: nn.Parameter) -> None:
        self.left[parameter] -= 1
        if self.left[parameter] or not isinstance(parameter.grad, DTensor):
            return
        for stream in self.waits_for():
            self.stream.wait_stream(stream)
        gradient = parameter.grad
        with torch.cuda.stream(self.stream):
            for axis, placement in enumerate(gradient.placements):
                if placement.is_replicate():
                    group = gradient.device_mesh.get_group(axis)
                    dist.all_reduce(gradient.to_local(), group=group)

    def wait(self) -> None:
        torch.cuda.current_stream().wait_stream(self.stream)

    def zero_grad(self) -> None:
        self.left = dict.fromkeys(self.parameters, self.count)
        for parameter in self.parameters:
            parameter.grad = None

    def unbind(self) -> None:
        for hook in self.hooks:
            hook.remove()
        self.zero_grad()


class WaitsForNobody(OneBucketEach):
    waits_for = staticmethod(list)


@pytest.mark.long
def test_hand_written_streams_of_cuda_run_unmodified() -> None:
    assert not torch.cuda.is_available()
    assert verify(OneBucketEach, ranks=4, examples=8, seed=0).violations == ()


@pytest.mark.long
def test_a_wait_that_such_a_subject_lacks_is_found() -> None:
    with pytest.raises(PropertyViolation) as caught:
        verify(WaitsForNobody, ranks=2, examples=10, seed=0)
    (found,) = caught.value.report.violations
    assert found.violation.property == "reduce_reads_after_accumulation"
    assert "insert `stream 1.wait_stream(default)` before " in str(caught.value)


def test_d9d_runs_unmodified_and_keeps_its_promises() -> None:
    pytest.importorskip("d9d", reason="pip install --no-deps d9d")
    assert verify("d9d", ranks=4, examples=25, seed=0).violations == ()


@pytest.mark.parametrize("backend", ["gloo", "fake"])
def test_the_order_of_streams_is_not_judged_where_there_is_none(backend: str) -> None:
    takes = Capabilities(takes_cuda_streams=True)
    (limits,) = [each for each in limits_of(backend, takes) if "streams" in each]
    assert limits == (
        f"not judged on {backend}: the order of streams, since all work runs at once there; "
        "play the subject on sim as well"
    )
    assert not [each for each in limits_of("sim", takes) if "streams" in each]
    open_backend(backend, Subject("d9d", OneBucketEach, takes)).close()
