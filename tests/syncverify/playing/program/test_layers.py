"""Layers of a user's own: which ones are refused, and that the error names the layer."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from syncverify.errors import LayerError
from syncverify.judge.reference import MicroBatches
from syncverify.playing.program.modules import module_parameters
from syncverify.playing.program.modules.layers import provide_layers
from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE, ScheduleChoice
from syncverify.scenario.specs import MeshSpec
from syncverify.search.judge import Judge
from syncverify.subjects.subject import resolve
from tests.programs import forget_layers

ONE = MeshSpec((1,), ("dp",))


class Sound(nn.Module):
    """A layer that scenarios train; a test sets `ends` to an exception or a factor."""

    ends: object = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3))

    def forward(self, generator: torch.Generator) -> torch.Tensor:
        inputs = torch.randn(3, generator=generator).to(self.weight)
        return _Ending.apply((inputs * self.weight).sum().float(), Sound.ends)


class _Ending(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loss, ends):
        ctx.ends = ends
        return loss.clone()

    @staticmethod
    def backward(ctx, gradient):
        if isinstance(ctx.ends, BaseException):
            raise ctx.ends
        return gradient * ctx.ends, None


class Chance(Sound):
    def forward(self, _: torch.Generator) -> torch.Tensor:
        return (torch.rand(3) * self.weight).sum()


class NanLoss(Sound):
    def forward(self, generator: torch.Generator) -> torch.Tensor:
        return super().forward(generator) * float("nan")


class InfiniteGradient(Sound):
    def forward(self, generator: torch.Generator) -> torch.Tensor:
        return super().forward(generator) + (self.weight - self.weight).sqrt().sum()


class Unused(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Parameter(torch.empty(3))


class Frozen(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Parameter(torch.empty(3), requires_grad=False)


class Buffered(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))


class Changing(Sound):
    def forward(self, generator: torch.Generator) -> torch.Tensor:
        with torch.no_grad():
            self.weight.add_(1)
        return super().forward(generator)


class ChangingBack(Sound):
    def forward(self, generator: torch.Generator) -> torch.Tensor:
        with torch.no_grad():
            self.weight.mul_(2).div_(2)
        return super().forward(generator)


class ChangingData(Sound):
    def forward(self, generator: torch.Generator) -> torch.Tensor:
        self.weight.data.add_(1)
        return super().forward(generator)


class SparseTable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(4, 3))

    def forward(self, generator: torch.Generator) -> torch.Tensor:
        index = torch.tensor([0, 2, 2])
        return nn.functional.embedding(index, self.weight, sparse=True).sum().float()


class WithoutParameters(nn.Module):
    """Nothing to train."""


class Exiting(Sound):
    def forward(self, generator: torch.Generator) -> torch.Tensor:
        raise SystemExit(3)


class Interrupted(Sound):
    def forward(self, generator: torch.Generator) -> torch.Tensor:
        raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def _sound_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(Sound, "ends", 1.0)
    yield
    forget_layers()


def scenario_of_sound() -> Scenario:
    provide_layers(Capabilities(layers=(f"{__name__}:Sound",)))
    return Scenario(ONE, module_parameters("Sound", ONE), (1,), 1, module="Sound")


@pytest.mark.parametrize(
    ("layer", "complaint"),
    [
        (Chance, "two runs give 'weight' two gradients; take all chance from the gener"),
        (NanLoss, "its loss is not finite"),
        (InfiniteGradient, "the gradient of 'weight' is not finite"),
        (Unused, "its loss does not use 'other'"),
        (Frozen, "its parameter 'other' is frozen; leave requires_grad=True"),
        (Buffered, "it has the buffer 'mean'; a layer has parameters alone"),
        (Changing, "it changes its parameter 'weight'"),
        (ChangingBack, "it changes its parameter 'weight'"),
        (ChangingData, "it changes its parameter 'weight'"),
        (
            SparseTable,
            "leave sparse=False; no scenario describes the sparse gradient of 'weight'"),
        (WithoutParameters, "it has no parameters"),
        (Exiting, "SystemExit: 3"),
    ],
)  # fmt: skip
def test_a_layer_is_refused_in_one_line(layer: type, complaint: str) -> None:
    path = f"{__name__}:{layer.__name__}"
    for _ in range(2):  # a layer that was refused stays unknown
        with pytest.raises(LayerError) as refused:
            provide_layers(Capabilities(layers=(path,)))
        assert str(refused.value).startswith(
            f"layer {path!r} cannot be trained: {complaint}"
        )
        assert "\n" not in str(refused.value)


def test_an_interrupted_check_is_made_again() -> None:
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            provide_layers(Capabilities(layers=(f"{__name__}:Interrupted",)))


@pytest.mark.parametrize(
    ("ends", "complaint"),
    [
        (ValueError("late"), "ValueError: late"),
        (float("inf"), "on another batch, the gradient of 'weight' is not finite"),
    ],
)
def test_a_layer_that_fails_alone_after_the_check_is_named(
    ends: object, complaint: str
) -> None:
    gradients = MicroBatches(scenario_of_sound())
    Sound.ends = ends
    with pytest.raises(LayerError, match=f":Sound' cannot be trained: {complaint}"):
        gradients.play(0)


@pytest.mark.parametrize(
    ("ends", "complaint"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (
            2.0,
            "'weight' has a gradient different from the one at the start, on the same batch",
        ),
    ],
)
def test_a_layer_that_is_another_function_now_is_refused_before_the_subject(
    ends: object, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, subject = scenario_of_sound(), resolve("synchronizer")
    judge = Judge(subject, SimBackend(), ScheduleChoice(), random_seed=0)
    assert not judge.judge_schedule(scenario, DEFAULT_SCHEDULE).violations
    later = Judge(subject, SimBackend(), ScheduleChoice(), random_seed=0)
    monkeypatch.setattr(Sound, "ends", ends)
    with pytest.raises(LayerError, match=f":Sound' cannot be trained: {complaint}"):
        later.judge_schedule(scenario, DEFAULT_SCHEDULE)
