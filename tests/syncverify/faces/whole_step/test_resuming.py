"""A training that is saved and loaded goes on as if there had been no pause."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim.lr_scheduler import LambdaLR

from syncverify import UsageError, parity
from syncverify.faces.whole_step.outcome import Parity
from syncverify.faces.whole_step.resuming import load_distributed, save_distributed
from syncverify.judge.whole_step.causes import Misplaced, NotContinued, NotLoaded
from syncverify.judge.whole_step.values import Quantity
from tests.syncverify.faces.whole_step import small_gpt
from tests.syncverify.faces.whole_step.small_gpt import batch, loss

pytestmark = [
    pytest.mark.filterwarnings("ignore:FSDP2-wrapped module"),
    # A step that is skipped for an overflow is no step of the optimizer.
    pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step"),
]

build = functools.partial(small_gpt.build, layers=1)


def scaler() -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cuda", init_scale=8.0, growth_interval=1)


def schedule(optimizer: torch.optim.Optimizer) -> LambdaLR:
    return LambdaLR(optimizer, lambda step: 1 / (1 + step))


def resumed(**others: Any) -> Parity:
    training = {
        "parallelize": small_gpt.tensor_parallel_fsdp,
        "loss": loss,
        "layouts": ["dp=2,tp=1"],
        "schedule": schedule,
    }
    return parity(build=build, batch=batch, resume=True, **(training | others))


@pytest.mark.long
def test_a_right_checkpoint_is_right_on_each_layout() -> None:
    result = resumed(layouts=["dp=2,tp=2", "dp=1,tp=2"], scaler=scaler)
    assert result.is_right, str(result)
    loaded = [
        (str(each.saved_on), str(each.layout))
        for each in result.plays
        if each.saved_on is not None
    ]
    assert loaded == [
        ("dp=2,tp=2", "dp=2,tp=2"),
        ("dp=2,tp=2", "dp=1,tp=2"),
        ("dp=1,tp=2", "dp=1,tp=2"),
        ("dp=1,tp=2", "dp=2,tp=2"),
    ]
    halves = [each for each in result.plays if each.saved_on is not None]
    # All parameters and states, before and after loading.
    assert min(each.num_values for each in halves) > 50


Load = Callable[..., None]


def load_without_steps(model, optimizer, scaler, schedule, path):
    load_distributed(model, optimizer, scaler, schedule, path)
    for state in optimizer.state.values():
        state["step"].zero_()


def load_without_schedule(model, optimizer, scaler, schedule, path):
    fresh = schedule.state_dict()
    rates = [group["lr"] for group in optimizer.param_groups]
    load_distributed(model, optimizer, scaler, schedule, path)
    schedule.load_state_dict(fresh)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def load_nothing(model: Any, path: str) -> None: ...


@pytest.mark.long
@pytest.mark.parametrize(
    ("load", "quantities"),
    [
        (load_without_schedule, {Quantity.LOADED_RATE}),
        (
            load_nothing,
            {
                Quantity.LOADED,
                Quantity.LOADED_STATE,
                Quantity.LOADED_SCALE,
                Quantity.LOADED_RATE,
            },
        ),
    ],
)
def test_what_is_not_loaded_is_named(load: Load, quantities: set[Quantity]) -> None:
    result = resumed(scaler=scaler, save=save_distributed, load=load)
    assert {each.finding.quantity for each in result.mistakes} == quantities
    assert len(result.mistakes) == len(quantities)
    assert all(each.finding.cause == NotLoaded() for each in result.mistakes)
    assert "is as in a new training" in str(result)


@pytest.mark.long
def test_a_lost_step_counter_is_told_from_lost_averages() -> None:
    result = resumed(save=save_distributed, load=load_without_steps)
    (mistake,) = result.mistakes
    assert mistake.finding.quantity is Quantity.LOADED_STATE
    assert {name.rpartition(" ")[2] for name in mistake.finding.names} == {"step"}


def _local(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def save_shards(model: nn.Module, optimizer: Any, schedule: Any, path: str) -> None:
    """Save each rank's shards in a file, by the number of the rank."""
    shards = {name: _local(each) for name, each in model.named_parameters()}
    states = [
        {key: _local(value) for key, value in optimizer.state[each].items()}
        for each in model.parameters()
    ]
    held = (shards, states, schedule.state_dict(), optimizer.param_groups[0]["lr"])
    torch.save(held, Path(path) / f"{dist.get_rank()}.pt")


def load_shards_of(
    rank: int, model: nn.Module, optimizer: Any, schedule: Any, path: str
) -> None:
    held = torch.load(Path(path) / f"{rank}.pt", weights_only=False)
    shards, states, of_schedule, rate = held
    with torch.no_grad():
        for name, each in model.named_parameters():
            _local(each).copy_(shards[name])
    for each, state in zip(model.parameters(), states, strict=True):
        optimizer.state[each] = {
            key: value
            if key == "step" or not isinstance(each, DTensor)
            else DTensor.from_local(value, each.device_mesh, each.placements)
            for key, value in state.items()
        }
    schedule.load_state_dict(of_schedule)
    optimizer.param_groups[0]["lr"] = rate


def load_shards(model: Any, optimizer: Any, schedule: Any, path: str) -> None:
    load_shards_of(dist.get_rank(), model, optimizer, schedule, path)


def load_other_shards(model: Any, optimizer: Any, schedule: Any, path: str) -> None:
    load_shards_of(1 - dist.get_rank(), model, optimizer, schedule, path)


def load_first_shards(model: Any, optimizer: Any, schedule: Any, path: str) -> None:
    load_shards_of(0, model, optimizer, schedule, path)


@pytest.mark.long
def test_own_files_of_each_rank_are_right() -> None:
    result = resumed(save=save_shards, load=load_shards)
    assert result.is_right, str(result)


@pytest.mark.parametrize(
    ("load", "order", "words"),
    [
        (load_other_shards, (1, 0), "parts are at wrong places: the right parts 1, 0"),
        (load_first_shards, (0, 0), "all 2 parts are copies of part 0"),
    ],
)
def test_a_shard_at_a_wrong_place_is_named(
    load: Load, order: tuple[int, ...], words: str
) -> None:
    result = resumed(save=save_shards, load=load)
    causes = {each.finding.cause for each in result.mistakes}
    assert causes == {Misplaced(order)}
    kinds = {each.finding.quantity for each in result.mistakes}
    assert kinds == {Quantity.LOADED, Quantity.LOADED_STATE}
    assert words in str(result)


class Dropping(nn.Linear):
    """A layer whose step draws random numbers, and does not use them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.rand(1)
        return super().forward(x)


def load_without_generator(model, optimizer, scaler, schedule, path):
    state = torch.get_rng_state()
    load_distributed(model, optimizer, scaler, schedule, path)
    torch.set_rng_state(state)


@pytest.mark.parametrize("load", [load_distributed, load_without_generator])
def test_a_generator_goes_on_where_steps_draw_from_it(load: Load) -> None:
    result = parity(
        lambda: Dropping(4, 4).cuda(),
        lambda model, mesh: small_gpt.fully_shard(model, mesh=mesh["dp"]) and None,
        lambda: torch.randn(8, 4, device="cuda"),
        lambda model, batch: model(batch).square().mean(),
        layouts=["dp=2"],
        resume=True,
        save=save_distributed,
        load=load,
    )
    found = [each.finding.quantity for each in result.mistakes]
    is_lost = load is load_without_generator
    assert found == ([Quantity.LOADED_GENERATOR] if is_lost else [])


class Counted:
    """A step with its own counter. No checkpoint has it."""

    def __init__(self) -> None:
        self.counts: dict[Any, int] = {}

    def __call__(self, model, batch, mesh, optimizer):
        count = self.counts.get(model, 0)
        self.counts[model] = count + 1
        for group in optimizer.param_groups:
            group["lr"] = 0.01 / (1 + count)
        loss(model, batch).backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.long
def test_a_counter_that_is_not_saved_shows_in_the_steps_after() -> None:
    more = {"loss": None, "schedule": None, "layouts": ["dp=1,tp=1"]}
    result = resumed(step=Counted(), **more)
    (mistake,) = result.mistakes
    assert mistake.finding.cause == NotContinued()
    assert mistake.finding.step == 1


def test_one_step_cannot_be_resumed() -> None:
    with pytest.raises(UsageError, match="2 or more steps"):
        resumed(steps=1)
