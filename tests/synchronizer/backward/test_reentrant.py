"""Parameters that get several gradients in one backward are never reduced early."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.checkpoint import checkpoint

from syncverify.synchronizer import (
    GradientSynchronizer,
    LateAccumulationError,
    StepFailedError,
)
from tests.programs import parameter, value


def loss(parameter: nn.Parameter, scale: float, *, segments: int, direct: int = 0):
    """Use a parameter in reentrant checkpoints, and without any."""
    x = torch.full((3,), float(scale), requires_grad=True)

    def segment(v: torch.Tensor) -> torch.Tensor:
        return v * parameter.to_local()

    def nested(v: torch.Tensor) -> torch.Tensor:
        return checkpoint(segment, v, use_reentrant=True)

    kept = [segment if number % 2 else nested for number in range(segments)]
    used = [checkpoint(each, x, use_reentrant=True) for each in kept]
    used += [x * parameter.to_local() for _ in range(direct)]
    return sum(used).sum()


@pytest.mark.parametrize(
    ("segments", "direct", "count"),
    [
        *(((3, 3, 3), direct, count) for direct in (0, 2) for count in (1, 2)),
        ((3, 1, 2), 0, 1),  # fewer than before: complete when the backward ends
    ],
)
def test_a_shared_weight_is_reduced_after_its_last_segment(
    ranks, segments, direct, count
):
    def program(rank: int) -> list[float]:
        a = parameter(init_device_mesh("cpu", (2,)))
        found = []
        with GradientSynchronizer([[a]], 1, count) as synchronizer:
            for each in segments:
                for _ in range(count):
                    loss(a, 2**rank, segments=each, direct=direct).backward()
                synchronizer.wait()
                found.append(value(a))
                synchronizer.zero_grad()
        return found

    expected = [3 * (each + direct) * count for each in segments]
    assert ranks.run(2, program) == [expected] * 2


def test_a_backward_overlaps_once_another_has_shown_what_comes(ranks, monkeypatch):
    """The reduction starts within the second backward, before the last gradient."""
    seen: list[int] = []
    all_reduce = dist.all_reduce

    def observed(tensor: torch.Tensor, **arguments: Any) -> Any:
        if dist.get_rank() == 0:
            seen.append(progress[0])
        return all_reduce(tensor, **arguments)

    monkeypatch.setattr(dist, "all_reduce", observed)
    progress = [0]

    def program(rank: int) -> None:
        mesh = init_device_mesh("cpu", (2,))
        early, late = parameter(mesh), parameter(mesh)

        def note(gradient: torch.Tensor) -> torch.Tensor:
            progress[0] += rank == 0
            return gradient

        with GradientSynchronizer([[late], [early]], 1, 1) as synchronizer:
            for _ in range(2):
                y = late.to_local() * 1
                y.register_hook(note)
                (y * early.to_local()).sum().backward()
                synchronizer.wait()
                synchronizer.zero_grad()

    ranks.run(2, program)
    assert seen == [1, 1, 1, 2]


def test_more_segments_than_ever_before_are_refused_once_in_flight(ranks):
    def program(_: int) -> None:
        mesh = init_device_mesh("cpu", (2,))
        a = parameter(mesh)
        names = {a: "a"}
        with GradientSynchronizer([[a]], 1, 1, parameter_names=names) as synchronizer:
            loss(a, 1, segments=1).backward()
            synchronizer.wait()
            synchronizer.zero_grad()
            got = "got:      accumulation 1 of a, gradient 2 of one backward"
            with pytest.raises(LateAccumulationError, match=got):
                loss(a, 1, segments=2).backward()
            with pytest.raises(StepFailedError):
                synchronizer.wait()

    ranks.run(2, program)


def test_a_node_may_run_two_backwards_that_bring_gradients(one_rank) -> None:
    """Between the two, the synchronizer knows no open backward, and none was interrupted."""
    a, b = (nn.Parameter(torch.zeros(3)) for _ in range(2))

    class TwoInside(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            for each in (a, b):
                with torch.enable_grad():
                    each.sum().backward()
            return gradient

    with GradientSynchronizer([[a, b]], 1, 1) as synchronizer:
        TwoInside.apply(torch.ones(1, requires_grad=True)).sum().backward()
        synchronizer.wait()
        assert [each.grad.tolist() for each in (a, b)] == [[1.0] * 3] * 2
