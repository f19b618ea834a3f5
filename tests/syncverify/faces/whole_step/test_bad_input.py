"""A training that cannot be compared is refused in one line, mostly before a mesh is played."""

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import dropout

from syncverify.calling import call
from syncverify.errors import UsageError
from syncverify.faces.whole_step import playing
from syncverify.faces.whole_step.outcome import Parity
from tests.syncverify.faces.whole_step.planted.steps import compare


def build(width: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 4, bias=False))


def parallelize(model: nn.Module, mesh: DeviceMesh) -> None:
    fully_shard(model, mesh=mesh["dp"])


def batch() -> torch.Tensor:
    return torch.randn(8, 8)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).square().mean()


def play(**changes: Any) -> Parity:
    training = {"build": build, "parallelize": parallelize, "batch": batch}
    return compare(**{**training, "loss": loss, **changes})


def refused(words: str, **changes: Any) -> None:
    with pytest.raises(UsageError) as caught:
        play(**changes)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def no_mesh_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    def played(*_: object, **__: object) -> None:
        pytest.fail("a step was played")

    monkeypatch.setattr(playing, "train", played)


def _of_a_random_generator() -> nn.Module:
    model = nn.Linear(8, 4)
    with torch.no_grad():
        model.weight.fill_(np.random.default_rng().random())
    return model


def _of_the_rank() -> nn.Module:
    model = build()
    if dist.get_rank() == 1:
        torch.manual_seed(1)
        nn.init.normal_(model[0].weight)
    return model


def _of_another_size() -> nn.Module:
    return nn.Linear(8, 4 + dist.get_rank())


@pytest.mark.parametrize("wrong", [_of_the_rank, _of_another_size])
@pytest.mark.usefixtures("no_mesh_is_played")
def test_a_build_that_uses_the_rank_is_refused(wrong: Callable[[], nn.Module]) -> None:
    refused("build() makes another model on rank 1 than on rank 0", build=wrong)


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (lambda mesh, model: (mesh, model), (3, 1)),
        (lambda model, batch, /: (model, batch), (1, 2)),
        (lambda p: p, 1),
        (lambda batch, *, other: (batch, other), (2, 1)),
        (lambda batch, scale=5, **_: (batch, scale), (2, 5)),
        (lambda: (), ()),
    ],
)
def test_a_function_gets_the_values_that_its_parameters_name(
    function: Callable[..., Any], given: object
) -> None:
    assert call(function, {"model": 1, "batch": 2, "mesh": 3}) == given


_calls = itertools.count()
_WRONG: list[tuple[str, dict[str, Any]]] = [
    ("build() returns different values in each call (first: weight)",
        {"build": _of_a_random_generator}),
    ("batch() returns different values in each call (first: tensor 0)",
        {"batch": lambda: torch.full((8, 8), float(next(_calls)))}),
    ("loss() returns different values in each call",
        {"loss": lambda model, batch: model(batch).sum() * random.random()}),
    ("expected loss() to return a tensor with one element, not one of shape [8, 4]; take",
        {"loss": lambda model, batch: model(batch)}),
    ("expected loss() to return a tensor, not float",
        {"loss": lambda model, batch: model(batch).sum().item()}),
    ("its loss has no gradient", {"loss": lambda model, batch: model(batch).sum().detach()}),
    ("expected batch() to return tensors", {"batch": lambda: ["a text"]}),
    ("expected build() to return values, not the device 'meta'",
        {"build": lambda: nn.Linear(8, 4, device="meta")}),
    ("expected build() to return a torch.nn.Module, not int", {"build": lambda: 3}),
    ("dimension 0 of a tensor of the batch has size 8, which 3 parts (dp) do not divide",
        {"layouts": ["dp=2", "dp=3"]}),
    ("layout dp=1,ep=3 does not divide dimension 0 of 0.weight, which has shape [4, 8]",
        {"own": {"*weight": {"ep": 0}}, "layouts": ["dp=1,ep=3"]}),
    ("own names 'expert*'", {"own": {"expert*": {"dp": 0}}}),
    ("takes 'meshes' ('mesh'?), which it is not given; it can take: model, batch",
        {"loss": lambda model, batch, meshes: model(batch).sum()}),
    ("expected `loss` to be a function, not 3", {"loss": 3}),
    ("expected `steps` to be a number of 1 or more, not 0", {"steps": 0}),
    ("expected `clip` to be more than 0, not 0", {"clip": 0}),
    ("expected `dtype` to be one of torch.float64, torch.float32, torch.bfloat16",
        {"dtype": torch.int64}),
    ("expected numbers of micro-batches of 1 or more, not 0", {"micro_batches": [0]}),
    ("expected a layout such as", {"layouts": [("dp", 2)]}),
    ("layout 'dp=2,dp=4' names an axis twice", {"layouts": "dp=2,dp=4"}),
    ("expected 2 ranks or more for all layouts, not 1", {"layouts": 1}),
    ("expected at least one layout", {"layouts": []}),
]  # fmt: skip


@pytest.mark.usefixtures("no_mesh_is_played")
@pytest.mark.parametrize(("words", "changes"), _WRONG)
def test_a_wrong_argument_is_refused(words: str, changes: dict[str, Any]) -> None:
    refused(words, **changes)


@pytest.mark.usefixtures("no_mesh_is_played")
def test_a_model_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    few = psutil.virtual_memory()._replace(available=1000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: few)
    refused("and 9.31e-07 GiB of memory are free; make the model smaller")


def test_a_key_error_of_the_program_is_its_own() -> None:
    def wrong(model: nn.Module, mesh: DeviceMesh) -> None:
        dict[str, int]().pop("dp")

    result = play(parallelize=wrong)
    assert not result.is_right
    assert "KeyError" in str(result)


def stays(model: nn.Module) -> None:
    """Put nothing on a mesh."""


def with_dropout(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return dropout(model(batch)).square().mean()


def of_own_rank() -> torch.Tensor:
    rank = dist.get_rank() if dist.is_initialized() else 0
    return torch.randn(8, 8) + rank


def complex_layer() -> nn.Module:
    model = nn.Linear(8, 4)
    model.weight = nn.Parameter(torch.zeros(4, 8, dtype=torch.complex64))
    return model


def without_an_optimizer(model: nn.Module, batch: torch.Tensor) -> None:
    loss(model, batch).backward()


def by_chance(model: nn.Module, batch: torch.Tensor, optimizer: Any) -> None:
    (loss(model, batch) * np.random.default_rng().random()).backward()
    optimizer.step()
    optimizer.zero_grad()


SPARSE = {
    "build": lambda: nn.Sequential(nn.Embedding(4, 2, sparse=True)),
    "batch": lambda: torch.tensor([[0, 1], [1, 1], [2, 3], [3, 3]]),
}
_SHOW_NOTHING: list[tuple[str, dict[str, Any]]] = [
    ("the step draws random numbers that change 0.weight", {"loss": with_dropout}),
    ("the step draws random numbers that change 0.weight",
        {"loss": with_dropout, "dtype": torch.bfloat16}),
    ("on one rank, no parameter has a gradient, or all are zero",
        {"loss": lambda model, batch: (model(batch) * 0).mean()}),
    ("on one rank, gradients have NaN or infinity: '0.weight'",
        {"loss": lambda model, batch: (model(batch) * torch.nan).mean()}),
    ("batch() makes other values on rank 1 of dp=2 than on one rank", {"batch": of_own_rank}),
    ("to return real parameters, not complex ones", {"build": complex_layer}),
    ("None for a model that it changes in place, not str",
        {"parallelize": lambda model, mesh: "nonsense", "step": lambda model: None}),
    ("no parameter can be compared",
        {"parallelize": lambda model, mesh: nn.Conv1d(2, 2, 2).double(),
        "step": lambda model: None}),
    ("no rank calls step() of a torch.optim.Optimizer in any step",
        {"step": without_an_optimizer}),
    ("two plays of layout dp=2 with the same seed differ", {"step": by_chance}),
    ("parallelize() takes the axis 'dp' of the mesh, and the layout has 'tp' alone",
        {"layouts": ["tp=2"]}),
    ("no rank communicates on any layout", {"parallelize": stays, "split": {}}),
    ("no rank communicates on any layout", {"layouts": ["dp=1"]}),
    ("leave out `resume`", {"resume": True, "dtype": torch.bfloat16}),
    ("expected dense gradients, and that of 0.weight is sparse; leave sparse=False", SPARSE),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("words", "changes"), _SHOW_NOTHING)
def test_a_training_that_shows_nothing_is_refused(
    words: str, changes: dict[str, Any]
) -> None:
    refused(words, **changes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "sets_rate"),
    [("cuts each element of a gradient off at 0.01", False), ("sets lr=0.5", True)],
)
def test_an_own_way_of_training_is_refused_beside_a_plain_step(
    words: str, *, sets_rate: bool
) -> None:
    def step(model: nn.Module, batch: torch.Tensor, optimizer: Any) -> None:
        loss(model, batch).backward()
        if sets_rate:
            optimizer.param_groups[0]["lr"] = 0.5
        else:
            nn.utils.clip_grad_value_(model.parameters(), 0.01)
        optimizer.step()
        optimizer.zero_grad()

    refused(f"step() {words}", step=step)
    alone = play(step=step, loss=None)
    assert alone.is_right, str(alone)


def test_all_layouts_of_a_number_of_ranks_are_played() -> None:
    def none(model: nn.Module, mesh: DeviceMesh) -> None:
        if mesh.size() > mesh["tp"].size():
            fully_shard(model, mesh=mesh["dp"])

    for listed in (2, ["all:2"]):
        result = play(parallelize=none, layouts=listed)
        assert result.is_right, str(result)
        assert [str(each.layout) for each in result.plays] == ["dp=1,tp=2", "dp=2,tp=1"]


def test_split_and_own_may_name_axes_of_other_layouts() -> None:
    result = play(split=["dp", "cp"], own={"0.weight": {"ep": 0}})
    assert result.is_right, str(result)
