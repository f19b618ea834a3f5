"""The norm of all gradients, each counted once wherever its shards are."""

import math
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from syncverify.synchronizer import (
    GradientSynchronizer,
    InvalidArgumentError,
    NonFiniteGradientError,
    SynchronizerConfig,
)
from syncverify.synchronizer.step.gradient_norm import CHUNK_NUMEL, _measure
from tests.programs import accumulate, parameter

WORLD_SIZE = 4
# Placements on a (2, 2) mesh, and local elements by rank, by name.
LAYOUTS: dict[str, tuple[tuple[Any, Any], tuple[int, ...]]] = {
    "everywhere": ((Replicate(), Replicate()), (40, 40, 40, 40)),
    "rows": ((Shard(0), Replicate()), (33, 33, 2, 2)),
    "one row": ((Shard(0), Replicate()), (3, 3, 0, 0)),
    "columns": ((Replicate(), Shard(0)), (5, 70, 5, 70)),
    "both": ((Shard(0), Shard(0)), (2, 3, 4, 0)),
}
# Ranks that hold the distinct parts of each gradient, once it is summed.
OWNERS = {
    "everywhere": (0,),
    "rows": (0, 2),
    "one row": (0, 2),
    "columns": (0, 1),
    "both": (0, 1, 2, 3),
}


def distributed(name: str, rank: int, dtype: torch.dtype) -> nn.Parameter:
    placements, numels = LAYOUTS[name]
    mesh = init_device_mesh("cpu", (2, 2))
    total = sum(numels[owner] for owner in OWNERS[name])
    local = torch.zeros(numels[rank], dtype=dtype)
    whole = DTensor.from_local(
        local, mesh, placements, run_check=False, shape=(total,), stride=(1,)
    )
    return nn.Parameter(whole)


def brought(
    name: str, rank: int, dtype: torch.dtype, *, integers: bool
) -> torch.Tensor:
    """Return a rank's contribution to a gradient."""
    seed = 10 * list(LAYOUTS).index(name) + rank
    generator = torch.Generator().manual_seed(seed)
    shape = (LAYOUTS[name][1][rank],)
    values = torch.randint(-9, 10, shape, generator=generator).double()
    if not integers:
        values += torch.rand(shape, generator=generator, dtype=torch.float64)
    return values.to(dtype)


def full_gradients(dtype: torch.dtype, *, integers: bool) -> dict[str, torch.Tensor]:
    """Sum each shard over the ranks that hold it, and put the shards together."""
    full = {}
    for name, ((rows, columns), _) in LAYOUTS.items():
        shards = []
        for owner in OWNERS[name]:
            holders = [
                rank
                for rank in range(WORLD_SIZE)
                if (rows == Replicate() or rank // 2 == owner // 2)
                and (columns == Replicate() or rank % 2 == owner % 2)
            ]
            parts = [brought(name, r, dtype, integers=integers) for r in holders]
            shards.append(torch.stack(parts).sum(dim=0))
        full[name] = torch.cat(shards)
    return full


def run(
    ranks, config: SynchronizerConfig, dtype: torch.dtype, *, integers: bool, measure
) -> list[Any]:
    """Reduce one gradient of each layout, and return the result of `measure`."""

    def program(rank: int) -> Any:
        weights = {name: distributed(name, rank, dtype) for name in LAYOUTS}
        group = [list(weights.values())]
        # Buckets are so small that some hold one parameter and others several.
        with GradientSynchronizer(group, 2**-12, 1, config=config) as sums:
            for name, each in weights.items():
                accumulate(each, brought(name, rank, dtype, integers=integers))
            sums.wait()
            return measure(sums, weights)

    return ranks.run(WORLD_SIZE, program)


def exact_norm(full: dict[str, torch.Tensor], p: float) -> float:
    values = torch.cat(list(full.values())).double().abs()
    if math.isinf(p):
        return values.max().item()
    return root(values.pow(p).sum().item(), p)


def root(total: float, p: float = 2) -> float:
    """Return torch's root, which may be off by the last bit for a square."""
    return torch.tensor(total, dtype=torch.float64).pow(1 / p).item()


MODES = ["all_reduce", "reduce_scatter"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms_of_integers_are_exact_on_every_rank(ranks, mode: str, dtype) -> None:
    full = full_gradients(dtype, integers=True)
    found = run(
        ranks,
        SynchronizerConfig(mode=mode),
        dtype,
        integers=True,
        measure=lambda sums, _: [
            sums.grad_norm().item(),
            sums.grad_norm(1).item(),
            sums.grad_norm(math.inf).item(),
        ],
    )
    expected = [exact_norm(full, p) for p in (2, 1, math.inf)]
    assert found == [expected] * WORLD_SIZE
    assert expected[0] > 50


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("p", "max_norm"), [(1.5, 1), (2, 1), (2, 1e4), (math.inf, 1)])
def test_clipping_equals_that_of_torch_on_full_gradients(
    ranks, mode: str, p: float, max_norm: float
) -> None:
    options = {"dtype": torch.float64, "integers": False}
    full = full_gradients(**options)

    def clipped(sums, weights) -> tuple[float, list[tuple[str, int, torch.Tensor]]]:
        names = {each: name for name, each in weights.items()}
        norm = sums.clip_grad_norm_(max_norm, p).item()
        return norm, [
            (names[o.parameter], o.start_numel, o.values.clone())
            for o in sums.owned_grads()
        ]

    found = run(ranks, SynchronizerConfig(mode=mode), measure=clipped, **options)
    plain = {name: nn.Parameter(torch.zeros_like(g)) for name, g in full.items()}
    for name, each in plain.items():
        each.grad = full[name].clone()
    expected = torch.nn.utils.clip_grad_norm_(plain.values(), max_norm, p).item()
    # Both sums of n positive powers are right to n roundings; some more for the powers,
    # the root, the quotient and the sums over ranks. The norm itself enters each gradient once.
    bound = 2 * (sum(map(len, full.values())) + 16) * 2**-53
    assert len(found) == WORLD_SIZE
    for rank, (norm, owned) in enumerate(found):
        assert abs(norm - expected) <= bound * expected
        assert owned
        for name, start, values in owned:
            start += shard_start(name, rank)
            wanted = plain[name].grad[start : start + len(values)]
            assert (values - wanted).abs().le(bound * wanted.abs()).all()
    assert expected > 1.1
    assert expected < 10000


def shard_start(name: str, rank: int) -> int:
    """Find where in the full gradient a rank's shard starts."""
    (rows, columns), numels = LAYOUTS[name]
    row, column = divmod(rank, 2)
    coordinate = (row if rows != Replicate() else 0) * 2
    coordinate += column if columns != Replicate() else 0
    return sum(numels[owner] for owner in OWNERS[name] if owner < coordinate)


@pytest.mark.parametrize("mode", MODES)
def test_scales_are_measured(ranks, mode: str) -> None:
    def program(rank: int) -> list[float]:
        a = nn.Parameter(torch.zeros(3))
        config = SynchronizerConfig(mode=mode, process_group=dist.group.WORLD)
        with GradientSynchronizer([[a]], 1, 1, config=config) as sums:
            found = []
            accumulate(a, torch.tensor([1.0, 2.0, 2.0]) * (rank + 1))
            sums.wait(scale=0.5)
            found.append(sums.grad_norm().item())
            sums.scale_grads(4)
            found.append(sums.grad_norm().item())
            found.append(sums.grad_norm().item())
        return found

    assert ranks.run(2, program) == [[4.5, 18.0, 18.0]] * 2


def test_plain_parameters_without_a_group_count_on_their_own_rank(ranks) -> None:
    def program(rank: int) -> float:
        mesh = init_device_mesh("cpu", (2,))
        shared = parameter(mesh, numel=1)
        sharded = parameter(mesh, Shard(0), numel=2)
        own = nn.Parameter(torch.zeros(1))
        with GradientSynchronizer([[shared, own, sharded]], 1, 1) as sums:
            assert len(sums.explain().buckets) == 2
            accumulate(shared, torch.tensor([2.0]))
            accumulate(sharded, torch.tensor([4.0, 4.0]))
            accumulate(own, torch.tensor([[6.0], [15.0]][rank]))
            sums.wait()
            return sums.grad_norm().item()

    shared, sharded = 4**2, 4 * 4**2
    expected = [root(shared + sharded + own**2) for own in (6, 15)]
    assert ranks.run(2, program) == expected


def test_a_large_buffer_is_measured_chunk_by_chunk(monkeypatch) -> None:
    assert CHUNK_NUMEL == 2**24
    monkeypatch.setattr("syncverify.synchronizer.step.gradient_norm.CHUNK_NUMEL", 10)
    flat = torch.arange(25, dtype=torch.bfloat16)
    squares = sum(value**2 for value in range(25))
    assert _measure(flat, 2).item() == squares
    assert _measure(flat, math.inf).item() == 24


def test_a_norm_of_gradients_that_are_not_finite_is_not_finite(one_rank) -> None:
    for bad in (math.nan, math.inf):
        a = nn.Parameter(torch.zeros(3))
        with GradientSynchronizer([[a]], 1, 1) as sums:
            accumulate(a, torch.tensor([1.0, bad, 2.0]))
            sums.wait()
            for p in (1, 2, math.inf):
                assert not math.isfinite(sums.grad_norm(p).item())


@pytest.mark.parametrize("value", [0, -1, math.nan, "2", True])
@pytest.mark.parametrize("name", ["norm_type", "max_norm"])
def test_a_norm_that_cannot_be_is_refused(one_rank, name: str, value) -> None:
    with GradientSynchronizer([[]], 1, 1) as sums:
        sums.wait()
        with pytest.raises(InvalidArgumentError) as caught:
            sums.clip_grad_norm_(**{"max_norm": 1} | {name: value})
        assert str(caught.value).splitlines() == [
            f"{name} is not a number above 0",
            "  expected: a number above 0",
            f"  got:      {name}={value!r}",
            "  where:    rank 0 of 1",
            f"  hint: {InvalidArgumentError.hint}",
        ]


@pytest.mark.parametrize("norm_type", [2.0, 3.0, math.inf])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_gradients_count_by_their_absolute_values(
    ranks, norm_type, dtype
) -> None:
    def program(rank: int) -> None:
        mesh = init_device_mesh("cpu", (2,))
        parameters = [parameter(mesh, dtype=dtype) for _ in range(2)]
        config = SynchronizerConfig(check_finite=True)
        with GradientSynchronizer([parameters], 1, 1, config=config) as sums:
            for each in parameters:
                gradient = torch.tensor([3 + 4j, 0, 1j * (rank + 1)], dtype=dtype)
                (each.to_local() * gradient.conj()).real.sum().backward()
            sums.wait()
            full = [nn.Parameter(torch.zeros(3, dtype=dtype)) for _ in parameters]
            for one, other in zip(full, parameters, strict=True):
                one.grad = other.grad.to_local().clone()
            expected = nn.utils.clip_grad_norm_(full, 2.0, norm_type)
            found = sums.clip_grad_norm_(2.0, norm_type)
            torch.testing.assert_close(found.to(expected.dtype), expected)
            for one, other in zip(full, parameters, strict=True):
                torch.testing.assert_close(other.grad.to_local(), one.grad)

    ranks.run(2, program)


def test_a_complex_gradient_that_is_not_finite_is_named(ranks) -> None:
    def program(rank: int) -> None:
        mesh = init_device_mesh("cpu", (2,))
        only = parameter(mesh, numel=2, dtype=torch.complex64)
        config = SynchronizerConfig(check_finite=True)
        with GradientSynchronizer([[only]], 1, 1, config=config) as sums:
            gradient = torch.tensor([1j, complex(1, math.inf if rank else 1)])
            torch.view_as_real(only.to_local() * 1)[..., 1].mul(
                gradient.imag
            ).sum().backward()
            with pytest.raises(NonFiniteGradientError):
                sums.wait()

    ranks.run(2, program)
