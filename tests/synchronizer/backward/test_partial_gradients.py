"""Gradients that arrive as Partial are reduced once, by the bucket alone."""

import threading
from collections import Counter
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from syncverify.synchronizer import (
    GradientMismatchError,
    GradientSynchronizer,
    SynchronizerConfig,
)
from tests import programs

MEAN = Partial("avg")

parameter = partial(programs.parameter, numel=4)


def loss(parameter: nn.Parameter, value: float, *placements: Placement) -> torch.Tensor:
    """Contribute a value that arrives with some placements."""
    return (parameter.to_local(grad_placements=placements or None) * value).sum()


def value(gradient: torch.Tensor) -> float:
    (found,) = gradient.to_local().unique().tolist()
    return found


@pytest.fixture
def collectives(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often all ranks together called an all-reduce: the buckets', and DTensor's."""
    seen: Counter[str] = Counter()
    lock = threading.Lock()  # ranks are threads

    def watch(module: Any, name: str) -> None:
        all_reduce = module.all_reduce

        def observed(*arguments: Any, **keywords: Any) -> Any:
            with lock:
                seen[name] += 1
            return all_reduce(*arguments, **keywords)

        monkeypatch.setattr(module, "all_reduce", observed)

    watch(dist, "bucket")
    watch(_functional_collectives, "DTensor")
    return seen


ARRIVALS = {"sum": ((Partial(),), 3), "mean": ((MEAN,), 1.5), "local": ((), 3)}


@pytest.mark.parametrize("arrival", ARRIVALS)
def test_what_is_partial_is_reduced_once_by_the_bucket(
    ranks, collectives, arrival
) -> None:
    placements, expected = ARRIVALS[arrival]

    def program(rank: int) -> list[float]:
        a = parameter(init_device_mesh("cpu", (2,)), Replicate())
        found = []
        with GradientSynchronizer([[a]], 1, 2) as synchronizer:
            for _ in "ab":
                for micro_batch in (1, 10):
                    loss(a, micro_batch * 2**rank, *placements).backward()
                synchronizer.wait()
                assert a.grad.placements == (Replicate(),)
                found.append(value(a.grad))
                synchronizer.zero_grad()
        return found

    assert ranks.run(2, program) == [[11 * expected] * 2] * 2
    assert collectives == {"bucket": 2 * 2}, "one a step and rank"


def test_a_replicated_weight_on_a_sharded_sequence_needs_no_collective_of_its_own(
    ranks, collectives
) -> None:
    """Two rows on each rank: DTensor itself finds that the gradient is Partial."""

    def program(rank: int) -> float:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        weight = parameter(mesh, Replicate())
        rows = torch.full((2, 4), 2.0**rank)
        sequence = DTensor.from_local(rows, mesh, [Shard(0)], run_check=False)
        with GradientSynchronizer([[weight]], 1, 1) as synchronizer:
            (sequence * weight).to_local().sum().backward()
            synchronizer.wait()
            return value(weight.grad)

    assert ranks.run(2, program) == [6, 6]
    assert collectives == {"bucket": 2}


@pytest.mark.parametrize("numel", [4, 0])
def test_an_axis_of_one_rank_needs_no_collective_of_its_own(
    ranks, collectives, numel
) -> None:
    """DTensor would even refuse it for an empty gradient beside a sharded axis."""

    def program(rank: int) -> list[float]:
        mesh = init_device_mesh("cpu", (2, 1, 1))
        a = parameter(mesh, Replicate(), Shard(0), Replicate(), numel=numel)
        with GradientSynchronizer([[a]], 1, 1) as synchronizer:
            loss(a, 2**rank, Replicate(), Shard(0), Partial()).backward()
            synchronizer.wait()
            return a.grad.to_local().tolist()

    assert ranks.run(2, program) == [[3] * numel] * 2
    assert collectives["DTensor"] == 0


def test_other_axes_are_left_to_dtensor(ranks, collectives) -> None:
    """Replicated and sharded, and Partial on both: one sum here, one scatter there."""

    def program(rank: int) -> list[float]:
        mesh = init_device_mesh("cpu", (2, 2))
        a = parameter(mesh, Replicate(), Shard(0), numel=2)
        local = torch.full((4,), 2.0**rank)
        both = DTensor.from_local(local, mesh, [Partial(), Partial()], run_check=False)
        a.register_hook(lambda _: both)
        with GradientSynchronizer([[a]], 1, 1) as synchronizer:
            a.to_local().sum().backward()
            synchronizer.wait()
            return a.grad.to_local().tolist()

    assert ranks.run(4, program) == [[15, 15]] * 4
    assert collectives == {"bucket": 4}, "DTensor scatters"


REDUCTIONS = {"none": (3, "DTensor"), "avg": (1.5, "bucket")}


@pytest.mark.parametrize("word", REDUCTIONS)
def test_what_is_partial_is_reduced_by_dtensor_where_no_bucket_does(
    ranks, collectives, word
) -> None:
    expected, by_whom = REDUCTIONS[word]

    def program(rank: int) -> float:
        a = parameter(init_device_mesh("cpu", (2,)), Replicate())
        config = SynchronizerConfig(axis_reductions={0: word})
        with GradientSynchronizer([[a]], 1, 1, config=config) as synchronizer:
            loss(a, 2**rank, Partial()).backward()
            synchronizer.wait()
            return value(a.grad)

    assert ranks.run(2, program) == [expected] * 2
    assert collectives == {by_whom: 2}


def test_gradients_for_others_are_left_alone(ranks) -> None:
    """`torch.autograd.grad` runs the same hooks; its caller gets DTensor's result."""

    def program(rank: int) -> float:
        mesh = init_device_mesh("cpu", (2,))
        a = parameter(mesh, Replicate())
        other = torch.ones(4, requires_grad=True)

        def check_derivative(*, create_graph: bool) -> None:
            with torch.enable_grad():
                (found,) = torch.autograd.grad(
                    loss(a, 5, Partial()), [a], create_graph=create_graph
                )
            assert found.placements == (Partial(),)
            assert value(found) == 5

        def differentiate(gradient: torch.Tensor) -> None:
            check_derivative(create_graph=False)

        with GradientSynchronizer([[a]], 1, 1) as synchronizer:
            check_derivative(create_graph=False)
            check_derivative(create_graph=True)
            inner = other * 1
            inner.register_hook(differentiate)
            (inner.sum() + loss(a, 2**rank, Partial())).backward()
            synchronizer.wait()
            return value(a.grad)

    assert ranks.run(2, program) == [3, 3]


def backward_of_inputs(a: nn.Parameter, scale: float) -> None:
    loss(a, scale, Partial()).backward(inputs=[a])


def backward_inside_of_grad(a: nn.Parameter, scale: float) -> None:
    x = torch.ones(4, requires_grad=True)
    inner = x * 1

    def accumulate(_: torch.Tensor) -> None:
        with torch.enable_grad():
            loss(a, scale, Partial()).backward()

    inner.register_hook(accumulate)
    torch.autograd.grad(inner.sum(), [x])


@pytest.mark.parametrize("backward", [backward_of_inputs, backward_inside_of_grad])
def test_every_way_to_accumulate_is_seen(ranks, collectives, backward) -> None:
    def program(rank: int) -> float:
        a = parameter(init_device_mesh("cpu", (2,)), Replicate())
        with GradientSynchronizer([[a]], 1, 1) as synchronizer:
            backward(a, 2**rank)
            synchronizer.wait()
            return value(a.grad)

    assert ranks.run(2, program) == [3, 3]
    assert collectives == {"bucket": 2}


def test_next_to_a_partial_use_a_replicated_one_counts_as_whole(ranks) -> None:
    """DTensor's sum of both, inside of autograd, where no caller may ask.

    The first use contributes 2**rank, 3 in all. The second, 10 on both ranks, is the same
    gradient twice to DTensor, and so counts once.
    """

    def program(rank: int) -> list[float]:
        a = parameter(init_device_mesh("cpu", (2,)), Replicate())
        found = []
        with GradientSynchronizer([[a]], 1, 1) as synchronizer:
            for placement in (Partial(), MEAN):
                (loss(a, 2**rank, placement) + loss(a, 10)).backward()
                synchronizer.wait()
                found.append(value(a.grad))
                synchronizer.zero_grad()
        return found

    assert ranks.run(2, program) == [[3 + 10, 1.5 + 10]] * 2


@pytest.mark.parametrize("word", ["max", "product"])
def test_what_is_no_sum_is_refused(ranks, word) -> None:
    placement = Partial(word)

    def program(rank: int) -> list[str]:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        a = parameter(mesh, Replicate())
        local = a.to_local(grad_placements=[placement])
        with GradientSynchronizer([[a]], 1, 1, parameter_names={a: "a"}):
            torch.autograd.grad(local.sum(), a, retain_graph=True)  # is none of ours
            loss(a, 0).backward()
        with (
            GradientSynchronizer([[a]], 1, 1, parameter_names={a: "a"}),
            pytest.raises(GradientMismatchError) as caught,
        ):
            a.to_local(grad_placements=[placement]).sum().backward()
        return str(caught.value).splitlines()

    assert ranks.run(2, program)[0] == [
        "the gradient of a would be summed twice",
        "  expected: Replicate, or a Partial sum or mean, on mesh axis 0",
        f"  got:      {placement}, which DTensor has reduced to accumulate it",
        "  where:    rank 0 of 2, mesh axes ('dp',)",
        (
            "  hint: use the parameter through to_local(), so that its gradient stays local until"
            " the synchronizer sums it, or comes as a Partial sum or mean"
        ),
    ]
