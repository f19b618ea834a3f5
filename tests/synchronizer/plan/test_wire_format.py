"""How sums travel: in which dtype, divided when, and multiplied how often."""

import gc
import weakref
from collections import defaultdict
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig
from tests import programs
from tests.synchronizer.operators import Operators

Sent = dict[int, list[weakref.ref[torch.Tensor]]]
FLOAT16_TINY = 2.0**-24  # the smallest subnormal


def parameter(*placements: Any, **options: Any) -> nn.Parameter:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return programs.parameter(mesh, *placements, **options)


def accumulate(parameter: nn.Parameter, value: complex) -> None:
    (parameter.to_local() * value).sum().real.backward()


def value(parameter: nn.Parameter) -> complex:
    (found,) = set(parameter.grad.to_local().tolist())
    return found


def averaged(**options: Any) -> SynchronizerConfig:
    return SynchronizerConfig(axis_reductions={0: "avg"}, **options)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Weak references to the tensors that were reduced, by rank."""
    seen: Sent = defaultdict(list)
    all_reduce = dist.all_reduce

    def observed(tensor: torch.Tensor, **arguments: Any) -> Any:
        seen[dist.get_rank()].append(weakref.ref(tensor))
        return all_reduce(tensor, **arguments)

    monkeypatch.setattr(dist, "all_reduce", observed)
    return seen


def test_gradients_are_rounded_on_the_wire_and_nowhere_else(ranks) -> None:
    """2**8 + 1 is 2**8 in bfloat16; local gradients and later steps keep all bits."""

    def program(rank: int) -> list[float]:
        replicated, sharded = parameter(), parameter(Shard(0))
        config = SynchronizerConfig(wire_dtype=torch.bfloat16)
        found = []
        with GradientSynchronizer(
            [[replicated, sharded]], 1, 2, config=config
        ) as synchronizer:
            for _ in range(2):
                for micro_batch in (256, 1):
                    for each in (replicated, sharded):
                        accumulate(each, micro_batch)
                assert replicated.grad.dtype == torch.float32
                synchronizer.wait()
                found.append((value(replicated), value(sharded)))
                synchronizer.zero_grad()
        return found

    assert ranks.run(2, program) == [[(512, 257)] * 2] * 2


@pytest.mark.long
def test_the_copy_on_the_wire_lives_from_launch_to_wait(sent) -> None:
    """One rank alone: others, as threads of the process, may keep the sent tensors alive."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    a = parameter()
    config = SynchronizerConfig(wire_dtype=torch.float16)
    with GradientSynchronizer([[a]], 1, 1, config=config) as synchronizer:
        for step in range(2):
            assert len(sent[0]) == step
            accumulate(a, 1)
            assert sent[0][step]().dtype == torch.float16
            synchronizer.wait()
            gc.collect()
            assert sent[0][step]() is None
            synchronizer.zero_grad()
    dist.destroy_process_group()


def test_a_mean_is_rounded_to_the_gradient_dtype_and_not_to_that_of_the_wire(
    ranks,
) -> None:
    def program(rank: int) -> float:
        a = parameter()
        config = averaged(wire_dtype=torch.float16)
        with GradientSynchronizer([[a]], 1, 1, config=config) as synchronizer:
            accumulate(a, 1 if rank == 1 else 0)
            synchronizer.wait()
            return value(a)

    assert ranks.run(3, program) == [torch.tensor(1 / 3).item()] * 3


def test_a_wire_may_be_wider_than_gradients(ranks, sent) -> None:
    def program(rank: int) -> list[Any]:
        a = parameter(dtype=torch.bfloat16)
        config = averaged(wire_dtype=torch.float32)
        with GradientSynchronizer([[a]], 1, 1, config=config) as synchronizer:
            accumulate(a, 257)
            found = [each().dtype for each in sent[rank]]
            synchronizer.wait(scale=3)
            return [*found, a.grad.dtype, value(a)]

    assert ranks.run(2, program) == [[torch.float32, torch.bfloat16, 768]] * 2


def test_complex_gradients_travel_as_they_are(ranks) -> None:
    def program(_: int) -> complex:
        a = parameter(dtype=torch.complex64)
        config = averaged(wire_dtype=torch.bfloat16, scaling="split")
        with GradientSynchronizer([[a]], 1, 1, config=config) as synchronizer:
            accumulate(a, 257 - 3j)
            synchronizer.wait()
            return value(a)

    assert ranks.run(2, program) == [257 + 3j] * 2


WIRES = [None, torch.float16, torch.float64]


@pytest.mark.parametrize("scaling", ["after", "split"])
@pytest.mark.parametrize("wire_dtype", WIRES)
def test_every_scaling_gives_the_mean(ranks, scaling, wire_dtype) -> None:
    def program(rank: int) -> list[float]:
        a = parameter()
        config = averaged(scaling=scaling, wire_dtype=wire_dtype)
        found = []
        with GradientSynchronizer([[a]], 1, 2, config=config) as synchronizer:
            for scale in (None, 2, 0):
                for micro_batch in (1, 2):
                    accumulate(a, micro_batch * 4**rank)
                synchronizer.wait(scale=scale)
                found.append(value(a))
                synchronizer.zero_grad()
        return found

    mean = 3 * (1 + 4 + 16 + 64) / 4
    assert ranks.run(4, program) == [[mean, 2 * mean, 0]] * 4


INF = float("inf")
RANGE = {
    # The mean of four equal numbers, on a float16 wire, by scaling.
    "after": {24000.0: INF, 60000.0: INF, FLOAT16_TINY: FLOAT16_TINY},
    "split": {24000.0: 24000.0, 60000.0: INF, FLOAT16_TINY: 0.0},
}


@pytest.mark.parametrize("scaling", RANGE)
def test_a_narrow_wire_overflows_to_infinity_and_rounds_small_values(
    ranks, scaling
) -> None:
    """With four ranks "split" bears twice as much, and loses the smallest number."""

    def program(_: int) -> dict[float, float]:
        a = parameter()
        config = averaged(scaling=scaling, wire_dtype=torch.float16)
        found = {}
        with GradientSynchronizer([[a]], 1, 1, config=config) as synchronizer:
            for given in RANGE[scaling]:
                accumulate(a, given)
                synchronizer.wait()
                found[given] = value(a)
                synchronizer.zero_grad()
        return found

    assert ranks.run(4, program) == [RANGE[scaling]] * 4


def multiplications(operators: Operators) -> int:
    return sum(name in ("mul", "mul_") for name in operators.names)


@pytest.mark.parametrize(
    ("config", "scale", "expected"),
    [
        (averaged(), 5, 1),
        (averaged(wire_dtype=torch.float16), 5, 1),
        (averaged(wire_dtype=torch.float16), None, 1),
        (SynchronizerConfig(), None, 0),
    ],
)
def test_all_late_factors_are_one_multiplication(
    ranks, config: SynchronizerConfig, scale: float | None, expected: int
) -> None:
    def program(_: int) -> int:
        a = parameter()
        with GradientSynchronizer([[a]], 1, 1, config=config) as synchronizer:
            with Operators() as in_backward:
                accumulate(a, 8)
            with Operators() as in_wait:
                synchronizer.wait(scale=scale)
            assert multiplications(in_backward) == 2, "forward and backward of the loss"
            return multiplications(in_wait)

    assert ranks.run(2, program) == [expected] * 2


@pytest.mark.parametrize("wire_dtype", [None, torch.bfloat16])
def test_a_factor_on_its_device_is_not_rounded(ranks, wire_dtype) -> None:
    """Calls what `wait()` calls with a tensor of an accelerator: it reads one of the host."""

    def program(_: int) -> list[float]:
        a = parameter()
        found = []
        factor = torch.tensor(1 + 2**-6, dtype=torch.bfloat16)
        for config in (averaged(wire_dtype=wire_dtype), SynchronizerConfig()):
            with GradientSynchronizer([[a]], 1, 1, config=config) as synchronizer:
                accumulate(a, 128)
                synchronizer._sequence.finish(drop_unused=False, scale=factor)
                found.append(value(a))
        return found

    assert ranks.run(3, program) == [[130.0, 390.0]] * 3


@pytest.mark.parametrize("wire_dtype", [None, torch.float16])
def test_a_scale_of_zero_leaves_used_parameters_used(ranks, wire_dtype) -> None:
    """Flags travel beside the gradients, and are divided, but never scaled."""

    def program(rank: int) -> list[Any]:
        a, b, never = parameter(), parameter(), parameter()
        config = averaged(wire_dtype=wire_dtype, unused="keep_none", scaling="split")
        with GradientSynchronizer([[a, b, never]], 1, 1, config=config) as synchronizer:
            accumulate((a, b)[rank], 2)
            synchronizer.wait(scale=0)
            return [value(a), value(b), never.grad]

    assert ranks.run(2, program) == [[0, 0, None]] * 2
