"""Writes that no hook sees, between the launch of a bucket and `wait()`."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from syncverify.synchronizer import (
    GradientSynchronizer,
    InFlightWriteError,
    SynchronizerConfig,
)
from tests.programs import accumulate, lines, parameter

KIB_MB = 2**-10


def dtensor() -> nn.Parameter:
    return parameter(init_device_mesh("cpu", (dist.get_world_size(),)), numel=256)


def make(
    make_parameter: Callable[[], nn.Parameter], names: str, *, size_mb: float = KIB_MB
) -> tuple[GradientSynchronizer, dict[str, nn.Parameter]]:
    group = {name: make_parameter() for name in names}
    sums = GradientSynchronizer(
        [list(group.values())],
        size_mb,
        1,
        parameter_names={each: name for name, each in group.items()},
        config=SynchronizerConfig(process_group=dist.group.WORLD),
    )
    return sums, group


def backward(group: dict[str, nn.Parameter], order: str) -> None:
    for name in order:
        accumulate(group[name])


def plain() -> nn.Parameter:
    return nn.Parameter(torch.zeros(256))


WRITES: dict[str, Callable[[torch.Tensor], Any]] = {
    "add_": lambda gradient: gradient.add_(1),
    "mul_ of a view": lambda gradient: gradient[:3].mul_(2),
    "norm clipping": lambda gradient: torch._foreach_mul_([gradient], 0.5),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_write_in_flight_is_refused_and_the_step_can_be_repeated(
    two_ranks, write
) -> None:
    sums, group = make(plain, "abc", size_mb=2 * KIB_MB)
    with sums:
        backward(group, "cb")
        WRITES[write](group["b"].grad)
        backward(group, "a")
        with pytest.raises(InFlightWriteError) as caught:
            sums.wait()
        assert lines(caught) == [
            "a gradient was written while it was being reduced",
            "  expected: no write to .grad between the last backward and wait()",
            "  got:      one of c, b",
            "  where:    rank 0 of 2, bucket 0",
            f"  hint: {InFlightWriteError.hint}",
        ]
        sums.zero_grad()
        backward(group, "cba")
        sums.wait()
        assert torch.equal(group["b"].grad, torch.ones(256))


def test_a_first_step_that_one_rank_alone_refuses_keeps_ranks_together(ranks) -> None:
    """The refused step still decides how buckets are cut anew, on both ranks."""

    def program(rank: int) -> list[float]:
        sums, group = make(dtensor, "abc")
        with sums:
            backward(group, "abc")
            if rank == 0:
                group["a"].grad.add_(1)
                with pytest.raises(InFlightWriteError):
                    sums.wait()
            else:
                sums.wait()
            sums.zero_grad()
            assert sums.explain().is_rebuilt
            backward(group, "cba")
            sums.wait()
            return [each.grad.to_local().sum().item() for each in group.values()]

    assert ranks.run(2, program) == [[512] * 3] * 2


def test_a_dtensor_that_was_written_is_named_alone(two_ranks) -> None:
    sums, group = make(dtensor, "abc", size_mb=4 * KIB_MB)
    with sums:
        backward(group, "cba")
        for name in "ba":
            group[name].grad.add_(1)
        with pytest.raises(InFlightWriteError) as caught:
            sums.wait()
        assert lines(caught)[2] == "  got:      b, a"


def test_writes_before_the_launch_and_after_wait_are_allowed(two_ranks) -> None:
    sums, group = make(plain, "ab", size_mb=4 * KIB_MB)
    with sums:
        for _ in range(2):
            backward(group, "b")
            group["b"].grad.mul_(3)
            backward(group, "a")
            sums.wait(scale=2)
            group["b"].grad.add_(1)
            sums.wait()
            sums.scale_grads(2)
            assert torch.equal(group["b"].grad, torch.full((256,), 14.0))
            sums.zero_grad()
