"""Rounding of any dtype is silent, and hides no mistake."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from syncverify import parity
from syncverify.errors import UsageError
from syncverify.faces.whole_step.outcome import Parity
from syncverify.judge.whole_step.causes import Decided, LacksSum, Scaled
from syncverify.judge.whole_step.noise import RoundingNoise
from syncverify.judge.whole_step.rounding import IN_FLOAT64, LoweredDtypes, Rounding
from syncverify.judge.whole_step.values import Quantity
from tests.syncverify.faces.whole_step.planted.steps import compare
from tests.syncverify.faces.whole_step.random_trainings import (
    FACTOR,
    drawn,
    ill_conditioned,
    judged,
)

# torch warns of views that our models do not change.
pytestmark = pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")

BFLOAT16 = Rounding.of([torch.bfloat16])
MIXED = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))


def batch() -> torch.Tensor:
    return torch.randn(8, 8)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = model(batch)
    return (out + out.square()).mean()


def fsdp(model: nn.Module, mesh: DeviceMesh) -> None:
    fully_shard(model, mesh=mesh["dp"])


def mixed(model: nn.Module, mesh: DeviceMesh) -> None:
    fully_shard(model, mesh=mesh["dp"], mp_policy=MIXED)


def half(model: nn.Module, mesh: DeviceMesh) -> None:
    policy = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32)
    fully_shard(model, mesh=mesh["dp"], mp_policy=policy)


def undivided(model: Any, mesh: DeviceMesh) -> None:
    mixed(model, mesh)
    model.set_gradient_divide_factor(1.0)


def unreduced(model: nn.Module, mesh: DeviceMesh) -> None:
    pass


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.5)


def scaler(init_scale: float) -> Any:
    return lambda: GradScaler("cpu", init_scale=init_scale)


def play(**changes: Any) -> Parity:
    training = {"build": build, "parallelize": mixed, "batch": batch, "loss": loss}
    more = {"optimizer": sgd, "dtype": torch.float32}
    return compare(**(training | more | changes))


@pytest.mark.long
@pytest.mark.parametrize(
    "changes",
    [
        {"clip": 0.1},
        {"dtype": torch.float64},
        {"dtype": torch.bfloat16, "parallelize": fsdp},
        {"dtype": torch.float16, "parallelize": fsdp},
        {"parallelize": half, "scaler": scaler(64.0)},
    ],
    ids=["mixed", "mixed-float64", "bfloat16", "float16", "mixed-float16"],
)
def test_rounding_of_lower_dtypes_is_silent(changes: dict[str, Any]) -> None:
    result = play(**changes)
    assert result.is_right, str(result)
    (played,) = [each for each in result.plays if each.variation is None]
    assert played.roundings is not None
    unjudged = [each.quantity for each in played.not_judged]
    assert Quantity.GRADIENT not in unjudged
    assert ("not judged" in str(result)) is bool(unjudged)


@pytest.mark.slow
def test_a_factor_of_two_is_named() -> None:
    (mistake,) = play(parallelize=undivided).mistakes
    axes = frozenset({frozenset({"dp"})})
    assert mistake.finding.quantity is Quantity.GRADIENT
    assert mistake.finding.cause == Scaled(2.0, axes)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_sum_that_is_missing_is_named(dtype: torch.dtype) -> None:
    (mistake,) = play(parallelize=unreduced, dtype=dtype).mistakes
    assert [each.function for each in mistake.places] == ["unreduced"]
    assert mistake.finding.cause == LacksSum(frozenset({"dp"}), 0.5)


@pytest.mark.long
def test_a_step_that_overflows_in_float16_is_skipped_on_one_rank_too() -> None:
    result = play(parallelize=half, scaler=scaler(2.0**17), clip=1.0, steps=4)
    assert result.is_right, str(result)
    steps = result.plays[0].simulation.results[0].steps
    made = [float(each.tensors[Quantity.SKIPPED]["steps"]) for each in steps]
    assert 0 < sum(made) < 4


def test_a_training_whose_steps_all_overflow_is_refused() -> None:
    with pytest.raises(UsageError, match="overflows in float16 in each step"):
        play(parallelize=half, scaler=scaler(2.0**30), clip=1.0)


def test_a_gradient_that_overflows_without_a_scaler_is_refused() -> None:
    def large(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return loss(model, batch) * 60000

    with pytest.raises(UsageError, match="overflows in float16 in step"):
        play(dtype=torch.float16, parallelize=fsdp, loss=large)


def test_a_training_in_which_rounding_hides_everything_is_refused() -> None:
    def cancelling(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = model(batch)
        return 1e4 * out.mean() - (1e4 - 1e-4) * out.mean()

    with pytest.raises(UsageError, match="nothing can be judged"):
        play(dtype=torch.bfloat16, parallelize=fsdp, loss=cancelling)


@pytest.mark.long
@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_an_own_step_without_a_loss_has_a_bound(factor: float) -> None:
    def step(model: nn.Module, batch: torch.Tensor, optimizer: Any, mesh: Any) -> None:
        (loss(model, batch) * (factor if mesh.size() > 1 else 1.0)).backward()
        optimizer.step()
        optimizer.zero_grad()

    result = play(loss=None, step=step)
    assert result.is_right is (factor == 1), str(result)
    assert result.plays[0].roundings is not None


def noise_of(rounding: Rounding) -> RoundingNoise:
    roundings = replace(IN_FLOAT64, step=rounding, scalars=rounding)
    return RoundingNoise(0, 1.0, roundings)


def test_noise_is_in_results_in_place_too_and_leaves_counters() -> None:
    value, counter = torch.ones(64, dtype=torch.float64), torch.ones(())
    with noise_of(BFLOAT16):
        value.add_(1)
        counter.add_(1)
    off = (value - 2).abs().max() / 2
    assert BFLOAT16.unit < off <= 2 * BFLOAT16.unit
    assert counter == 2


def test_noise_of_float16_has_a_smallest_number() -> None:
    rounding = Rounding.of([torch.float16])
    tiny = torch.tensor([1e-9] * 64 + [0.0], dtype=torch.float64)
    with noise_of(rounding):
        off = tiny + 0 - tiny
    assert off.abs().max() > rounding.spacing / 2
    assert off[-1] == 0


def test_dtypes_are_noted_where_a_tensor_is_rounded_to_them() -> None:
    noted = LoweredDtypes()
    with noted.noting():
        torch.ones(2, dtype=torch.bool).to(torch.bfloat16)
        torch.ones((), dtype=torch.float64).float()
        torch.ones(2).to(torch.float64).to(torch.float32)
        torch.empty(2, dtype=torch.float16).copy_(torch.ones(2))
    assert noted.found == {torch.float32, torch.float16}


@pytest.mark.long
def test_one_rank_that_does_not_skip_an_overflow_is_found() -> None:
    """Each rank looks at its own gradients alone, and those of rank 0 overflow."""

    def step(model, batch, optimizer, scaler, mesh):
        large = 2.0**20 if mesh["dp"].get_local_rank() == 0 else 1.0
        (loss(model, batch) * large).backward()
        if all(bool(each.grad.isfinite().all()) for each in model.parameters()):
            optimizer.step()
        optimizer.zero_grad()

    (mistake, *_) = play(
        dtype=torch.float16, parallelize=unreduced, step=step, scaler=scaler(1.0)
    ).mistakes
    assert isinstance(mistake.finding.cause, Decided)


def mean(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = model(batch)
    return out.mean()


def own_step(model, batch, optimizer):
    mean(model, batch).backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.long
@pytest.mark.parametrize("more", [{"loss": mean}, {"step": own_step}])
def test_a_difference_in_the_rounding_of_a_cancelling_sum_is_silent(
    more: dict[str, Any],
) -> None:
    """Each rank adds its own part of terms that cancel, and the sum is scaled up."""
    terms = torch.randn(64, 8, dtype=torch.float64)
    terms = torch.cat([terms, -terms.flip(0)])

    result = parity(
        lambda: nn.Linear(8, 8).cuda(),
        fsdp,
        lambda: terms.cuda(),
        **more,
        layouts=["dp=4"],
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.1, eps=1e-18),
    )
    assert result.is_right, str(result)


@pytest.mark.long
def test_a_small_mistake_is_found() -> None:
    """A part of 1e-9 of a gradient is wrong."""

    def wrong(model: nn.Module, batch: torch.Tensor, mesh: Any) -> torch.Tensor:
        return loss(model, batch) * (1.0 if mesh is None else 1.0 + 1e-9)

    result = parity(
        lambda: nn.Linear(8, 8).cuda(),
        fsdp,
        lambda: torch.randn(8, 8, device="cuda"),
        wrong,
        layouts=["dp=2"],
    )
    first = result.mistakes[0].finding
    assert first.quantity in {Quantity.GRADIENT, Quantity.STEPPED}


# Layouts of 2, 4 and 8 ranks, all kinds of blocks and optimizers; by day, the cheapest.
BY_DAY = {1, 2, 8}


@pytest.mark.long
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=() if seed in BY_DAY else pytest.mark.nightly)
        for seed in range(12)
    ],
)
def test_an_ill_conditioned_right_training_is_right(seed: int) -> None:
    result = parity(**ill_conditioned(seed))
    assert result.is_right, str(result)


SAMPLE = (4,)
# 1,000 trainings of each kind.
CHUNKS = [range(first, first + 100) for first in range(0, 1000, 100)]


def check_silent(seed: int) -> None:
    result = judged(drawn(seed))
    assert result is None or result.is_right, str(result)


def check_named(seed: int) -> None:
    result = judged(drawn(seed, is_wrong=True))
    if result is not None:
        first = result.mistakes[0].finding
        assert first.quantity in {Quantity.GRADIENT, Quantity.STEPPED}
        assert isinstance(first.cause, Scaled), str(result)
        assert first.cause.factor == FACTOR


CHECKS = pytest.mark.parametrize("check", [check_silent, check_named])


@pytest.mark.long
@CHECKS
def test_a_sample_of_random_trainings_is_judged_rightly(
    check: Callable[[int], None],
) -> None:
    for seed in SAMPLE:
        check(seed)


@pytest.mark.nightly
@CHECKS
@pytest.mark.parametrize("chunk", CHUNKS, ids=str)
def test_random_trainings_in_lower_dtypes_are_judged_rightly(
    check: Callable[[int], None], chunk: range
) -> None:
    for seed in chunk:
        check(seed)
