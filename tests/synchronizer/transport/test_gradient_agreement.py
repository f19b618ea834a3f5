"""Axes on which ranks must hold the same gradient: silent if they do, an error if not."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Placement, Replicate

from syncverify.synchronizer import (
    GradientDisagreementError,
    GradientSynchronizer,
    StepFailedError,
    SynchronizerConfig,
)
from syncverify.synchronizer.transport.gradient_agreement import checksum

KIB_MB = 2**-10
CHECK_TP = SynchronizerConfig(axis_reductions={"tp": "check"})
BOTH = (Replicate(), Replicate())


def parameter(mesh: DeviceMesh, *placements: Placement, numel: int = 3) -> nn.Parameter:
    local = torch.zeros(numel)
    return nn.Parameter(DTensor.from_local(local, mesh, placements, run_check=False))


def accumulate(parameter: nn.Parameter, gradient: torch.Tensor | float) -> None:
    (parameter.to_local() * gradient).sum().backward()


def value(parameter: nn.Parameter) -> float:
    (found,) = parameter.grad.to_local().unique().tolist()
    return found


def lines(caught: pytest.ExceptionInfo[BaseException]) -> list[str]:
    return str(caught.value).splitlines()


def test_ranks_that_agree_are_not_summed(ranks) -> None:
    """Every row gives one number to all of its ranks; the other axis is summed."""

    def program(rank: int) -> list[float]:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        a = parameter(mesh, *BOTH)
        found = []
        with GradientSynchronizer([[a]], 1, 2, config=CHECK_TP) as synchronizer:
            for _ in "ab":
                for micro_batch in (1, 10):
                    accumulate(a, micro_batch * 2 ** (rank // 2))
                synchronizer.wait()
                synchronizer.wait()  # there is nothing left to compare
                found.append(value(a))
                synchronizer.zero_grad()
        return found

    assert ranks.run(4, program) == [[33, 33]] * 4


def test_the_sign_of_zero_is_no_difference(ranks) -> None:
    def program(rank: int) -> list[float]:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        a = parameter(mesh, Replicate())
        with GradientSynchronizer([[a]], 1, 1, config=CHECK_TP) as synchronizer:
            a.grad.to_local().fill_((0.0, -0.0)[rank])
            with synchronizer.no_sync():
                pass
            accumulate(a, -0.0)
            synchronizer.wait()
            return a.grad.to_local().tolist()

    assert ranks.run(2, program) == [[0, 0, 0]] * 2


def test_the_first_gradient_that_differs_is_named_with_its_ranks(ranks) -> None:
    """Before the sum over dp, after which the difference is lost."""

    def program(rank: int) -> Any:
        mesh = init_device_mesh("cpu", (2, 3), mesh_dim_names=("dp", "tp"))
        a, b, c = group = [parameter(mesh, *BOTH) for _ in "abc"]
        names = dict(zip(group, "abc", strict=True))
        given = {0: 1.0, 1: 1.0, 2: 2.0, 3: 2.0, 4: 2.0, 5: 1.0}  # column sums are 3
        with GradientSynchronizer(
            [group], 1, 1, parameter_names=names, config=CHECK_TP
        ) as synchronizer:
            for each, gradient in ((a, given[rank]), (b, given[rank]), (c, 1)):
                accumulate(each, gradient)
            with pytest.raises(GradientDisagreementError) as caught:
                synchronizer.wait()
            with pytest.raises(StepFailedError):
                synchronizer.wait()
            synchronizer.zero_grad()
            for each in group:
                accumulate(each, 2 ** (rank // 3))
            synchronizer.wait()
            return lines(caught), [value(each) for each in group]

    found = ranks.run(6, program)
    assert [values for _, values in found] == [[3, 3, 3]] * 6
    assert found[1][0] == [
        "ranks disagree about the gradient of b",
        "  expected: the same on ranks 0, 1, 2, which are checked",
        "  got:      another one on rank 2 than on rank 0, 1",
        "  where:    rank 1 of 6, bucket 0",
        f"  hint: {GradientDisagreementError.hint}",
    ]
    assert found[5][0][2] == "  got:      another one on rank 5 than on rank 3, 4"


def test_a_check_alone_is_launched_in_the_backward_and_leaves_gradients(
    ranks, monkeypatch
) -> None:
    seen: list[tuple[int, int]] = []
    all_gather = dist.all_gather

    def observed(rows: list[torch.Tensor], mine: torch.Tensor, **more: Any) -> Any:
        seen.append((dist.get_rank(), mine.numel()))
        return all_gather(rows, mine, **more)

    monkeypatch.setattr(dist, "all_gather", observed)
    monkeypatch.setattr(dist, "all_reduce", None)

    def program(rank: int) -> list[Any]:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        a, b = parameter(mesh, Replicate()), parameter(mesh, Replicate(), numel=512)
        found: list[Any] = []
        with GradientSynchronizer([[a, b]], KIB_MB, 1, config=CHECK_TP) as synchronizer:
            accumulate(b, 5)
            found.append([numel for r, numel in seen if r == rank])
            accumulate(a, 7)
            synchronizer.wait()
            found += [value(a), value(b), [numel for r, numel in seen if r == rank]]
        return found

    assert ranks.run(2, program) == [[[1], 7, 5, [1, 1]]] * 2


def test_all_checked_axes_are_one_set_of_ranks(ranks) -> None:
    def program(rank: int) -> list[str]:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        a = parameter(mesh, *BOTH)
        config = SynchronizerConfig(axis_reductions={"dp": "check", "tp": "check"})
        with GradientSynchronizer([[a]], 1, 1, config=config) as synchronizer:
            accumulate(a, 4)
            synchronizer.wait()
            assert value(a) == 4
            synchronizer.zero_grad()
            accumulate(a, 4 + (rank == 1))
            with pytest.raises(GradientDisagreementError) as caught:
                synchronizer.wait()
        return lines(caught)

    for found in ranks.run(4, program):
        assert found[2] == "  got:      another one on rank 1 than on rank 0, 2, 3"


def test_a_check_in_flight_ends_with_unbind(ranks) -> None:
    def program(rank: int) -> list[Any]:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        a = parameter(mesh, Replicate())
        synchronizer = GradientSynchronizer([[a]], 1, 1, config=CHECK_TP)
        synchronizer.bind()
        accumulate(a, rank)
        accumulate_again = a.grad is not None
        synchronizer.unbind()
        return [accumulate_again, a.grad]

    assert ranks.run(2, program) == [[True, None]] * 2


def test_unused_parameters_agree_that_there_is_nothing(ranks) -> None:
    def program(_: int) -> list[Any]:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        a, b = parameter(mesh, Replicate()), parameter(mesh, Replicate())
        config = SynchronizerConfig(axis_reductions={"tp": "check"}, unused="keep_none")
        with GradientSynchronizer([[a, b]], 1, 1, config=config) as synchronizer:
            accumulate(a, 3)
            synchronizer.wait()
            return [value(a), b.grad]

    assert ranks.run(2, program) == [[3, None]] * 2


DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64, torch.complex128])
def test_a_checksum_sees_values_places_and_nothing_else(dtype) -> None:
    base = torch.arange(1, 65).to(dtype)
    least = torch.finfo(dtype).eps
    variants = [
        base,
        torch.cat([base[1:2], base[:1], base[2:]]),
        base.flip(0),
        torch.cat([base[:1] + least, base[1:]]),
        torch.cat([base[:-1], base[-1:] * -1]),
        torch.cat([base[:1] + least, base[1:2] - 2 * least, base[2:]]),
        torch.zeros_like(base),
        torch.ones_like(base),
        torch.full_like(base, 2),
        torch.full_like(base, float("nan")),
    ]
    if dtype.is_complex:
        variants.append(base * 1j)
    sums = [int(checksum(each)) for each in variants]
    assert len(set(sums)) == len(sums)
    assert sums == [int(checksum(each.clone())) for each in variants]
    assert int(checksum(-torch.zeros_like(base))) == sums[6]
    assert int(checksum(base[:0])) == 0
