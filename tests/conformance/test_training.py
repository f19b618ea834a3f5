"""Whole training steps: every gradient is the mean over the ranks."""

import io
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig
from tests.conformance.training import (
    LEARNING_RATE,
    assert_averages,
    assert_equal,
    descend,
    gradients,
    inputs_of,
    layers,
    mean_over_ranks,
    of,
    sum_over,
    train_step,
)
from tests.conformance.wrappers import BySynchronizer, ours, wrapped_by


class WithFrozenParts(nn.Module):
    """Layers with a frozen bias, and with a frozen parameter of integers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 10, bias=False)
        self.second = nn.Linear(10, 50)
        self.second.bias.requires_grad_(requires_grad=False)
        self.last = nn.Linear(50, 4, bias=False)
        self.steps = nn.Parameter(torch.tensor([2, 2]), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.second(self.first(x).relu()).relu())


def squares(*, seed: int, rows: int = 2, columns: int = 2):
    """The losses of a step with one backward."""

    def losses(model, rank):
        yield model(inputs_of(rank, rows, columns, seed=seed)).square().mean()

    return losses


@pytest.mark.parametrize(
    ("make", "bucket_mb"),
    [(of(WithFrozenParts), 25), (partial(layers, 2, 10, 50, 4, bias=False), 0.001)],
    ids=["frozen parts", "small buckets"],
)
def test_trains_a_model(play, wrap, make, bucket_mb) -> None:
    steps = [squares(seed=seed) for seed in range(3)]
    assert_averages(play, wrap, make, *steps, bucket_mb=bucket_mb)


@pytest.mark.parametrize("wrapper", ["synchronizer", "replicate"])
def test_replaces_replicate(play, wrapper) -> None:
    wrap = partial(wrapped_by, wrapper)
    steps = [squares(seed=seed, rows=1) for seed in range(2)]
    assert_averages(play, wrap, partial(layers, 2, 2, 2, 2), *steps, bucket_mb=1)


@pytest.mark.parametrize("wrapper", ["synchronizer", "replicate"])
def test_each_layer_for_itself(play, wrapper) -> None:
    def program(rank: int) -> None:
        model, alone = layers(2, 2, 2, 2), layers(2, 2, 2, 2)
        wrapped = [wrapped_by(wrapper, layer) for layer in model]
        for seed in range(2):
            alone.load_state_dict(model.state_dict())
            expected = mean_over_ranks(alone, squares(seed=seed, rows=1))
            for loss in squares(seed=seed, rows=1)(model, rank):
                loss.backward()
            for each in wrapped:
                each.finish()
            assert_equal(gradients(model), expected)
            descend(model)
            for each in wrapped:
                each.zero_grad()

    play(2, program)


@pytest.mark.parametrize("wrapper", ["synchronizer", "replicate"])
def test_leaves_an_ignored_layer_alone(play, wrapper) -> None:
    def program(rank: int) -> None:
        model = layers(2, 2, 2, 2)
        ignored, losses = ("0.weight", "0.bias"), squares(seed=1)
        expected = mean_over_ranks(model, losses)
        own = sum_over(model, losses, [rank])
        expected |= {name: own[name] for name in ignored}
        wrapped = wrapped_by(wrapper, model, ignored=ignored)
        train_step(wrapped, losses, rank)
        assert_equal(gradients(model), expected)

    play(2, program)


@pytest.mark.parametrize("is_whole", [True, False])
def test_leaves_the_state_dict_as_it_is(play, is_whole) -> None:
    def program(_: int) -> None:
        model = layers(2, 2, 2, 2)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        parts = [model] if is_whole else [*model]
        bound = [ours(part) for part in parts]
        after = model.state_dict()
        assert [*after] == [*before]
        assert all(torch.equal(after[name], before[name]) for name in before)
        for each in bound:
            each.synchronizer.unbind()

    play(2, program)


def test_a_checkpoint_in_the_middle_changes_nothing(play, wrap) -> None:
    def trained(wrapped: Any, model: nn.Module, rank: int, num_steps: int) -> None:
        for _ in range(num_steps):
            train_step(wrapped, squares(seed=1), rank)
            descend(model)
            wrapped.zero_grad()

    def program(rank: int) -> None:
        model, straight = (layers(2, 3, 4, bias=False) for _ in range(2))
        wrapped, other = wrap(model), wrap(straight)
        trained(wrapped, model, rank, 3)
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        model.load_state_dict(torch.load(file))
        trained(wrapped, model, rank, 3)
        trained(other, straight, rank, 6)
        for found, expected in zip(
            model.parameters(), straight.parameters(), strict=True
        ):
            assert torch.equal(found, expected)

    play(2, program)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_parameters_without_elements(play, wrap) -> None:
    def losses(model, rank):
        yield model(inputs_of(rank, 2, 10)).sum()

    assert_averages(play, wrap, partial(layers, 10, 10, 0), losses)


def test_forward_alone_hangs_on_no_rank(play, wrap) -> None:
    def program(rank: int) -> None:
        model = layers(2, 10, 4)
        wrapped = wrap(model)
        if rank == 0:
            model.eval()
            for seed in range(6):
                inputs = inputs_of(rank, 10, 2, seed=seed)
                with torch.no_grad():
                    assert torch.equal(wrapped(inputs), model(inputs))

    play(2, program)


def test_two_forwards_before_one_backward(play, wrap) -> None:
    def losses(model, rank):
        inputs = inputs_of(rank, 2, 10)
        yield model(inputs).relu().sum() + model(inputs + 1).relu().sum()

    steps = [losses] * 3
    assert_averages(play, wrap, partial(layers, 10, 10), *steps, static_graph=True)


def test_adam_is_fed_with_means(play, wrap) -> None:
    def program(rank: int) -> None:
        model, alone = layers(2, 2, 2, 2), layers(2, 2, 2, 2)
        wrapped = wrap(model)
        optimizers = [
            torch.optim.Adam(each.parameters(), lr=LEARNING_RATE)
            for each in (model, alone)
        ]
        for seed in range(10):
            expected = mean_over_ranks(alone, squares(seed=seed))
            for name, parameter in alone.named_parameters():
                parameter.grad = expected[name]
            train_step(wrapped, squares(seed=seed), rank)
            for optimizer in optimizers:
                optimizer.step()
            wrapped.zero_grad()
        for one, other in zip(model.parameters(), alone.parameters(), strict=True):
            assert torch.equal(one, other)

    play(2, program)


def test_losses_are_scaled_for_mixed_precision(play, wrap) -> None:
    """Autocast computes in bfloat16; the optimizer step is skipped for an infinity."""

    def program(rank: int) -> list[list[float]]:
        model = layers(2, 4, bias=False).float()
        wrapped = wrap(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=2**-6)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
        before = model[0].weight.detach().clone()
        for seed in range(4):
            with torch.autocast("cpu"):
                loss = wrapped(inputs_of(rank, 2, 2, seed=seed).float()).float().sum()
            factor = float("inf") if seed == 2 and rank else 1.0
            scaler.scale(loss * factor).backward()
            wrapped.finish()
            is_finite = model[0].weight.grad.isfinite().all()
            assert is_finite == (seed != 2)
            scaler.step(optimizer)
            scaler.update()
            assert torch.equal(before, model[0].weight) == (seed == 2)
            before = model[0].weight.detach().clone()
            wrapped.zero_grad()
        assert scaler.get_scale() == 2.0**7
        return model[0].weight.tolist()

    first, second = play(2, program)
    assert first == second


def test_buffers_and_parameters_stay_in_place_under_functional_call(play) -> None:
    """The gradients of given tensors are the caller's; those of the model stay zero."""

    def program(_: int) -> None:
        model = layers(1, 1)
        config = SynchronizerConfig(process_group=dist.group.WORLD)
        bound = GradientSynchronizer.from_module(model, 1, 1, config=config)
        with bound:
            weight = torch.ones(1, 1, dtype=torch.float64, requires_grad=True)
            bias = torch.zeros(1, dtype=torch.float64, requires_grad=True)
            given = {"0.weight": weight, "0.bias": bias}
            x = torch.full((1, 1), 3.0, dtype=torch.float64)
            result = torch.func.functional_call(model, given, x)
            assert torch.equal(result, x)
            result.backward()
            assert (weight.grad.item(), bias.grad.item()) == (3, 1)
            assert not any(p.grad.any() for p in model.parameters())

    play(2, program)


def test_a_group_of_a_mesh_takes_the_place_of_a_process_group(play) -> None:
    def wrap(model: nn.Module) -> BySynchronizer:
        return ours(model, group=dist.init_device_mesh("cpu", (2,)).get_group())

    assert_averages(play, wrap, partial(layers, 2, 2), squares(seed=1))
