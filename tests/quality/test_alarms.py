"""Programs about which the harness once cried wolf: a right synchronizer is right in them."""

import itertools
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist

from syncverify.judge.properties import check
from syncverify.playing.fake import FakeBackend
from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import WORDS
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.subject import resolve
from tests.programs import violations

ALONE = MeshSpec((1,), ("dp",))
# Uses whose functions a compiler makes, for a minute each.
COMPILED = {"compiled_region", "cpp_function", "cpp_kernel"}
USES = [each for each in WORDS["use"] if each not in COMPILED]
GRID = MeshSpec((2, 2), ("dp", "tp"))


def program(
    *parameters: ParameterSpec,
    accumulations: tuple[int, ...] = (1,),
    mesh: MeshSpec = ALONE,
    **words: Any,
) -> Scenario:
    plain = Scenario(mesh, parameters, accumulations, 1 << 20)
    return replace(plain, **words)


def parameter(
    name: str = "p0", *, shape: tuple[int, ...] = (), **more: Any
) -> ParameterSpec:
    placements = more.pop("placements", ("R",))
    return replace(ParameterSpec(name, shape, placements), **more)


EMPTY = parameter(shape=(0,), placements=("S0",))
PROGRAMS = {
    # torch takes a view of a leaf to find its node; of an empty shard DTensor has none.
    "empty shard on a side stream": program(EMPTY, launch="step_on_side_stream"),
    "hooks of others on an empty shard": program(EMPTY, backward="hooks_of_others"),
    # Three quarters of an odd number that is added to a large one took a ninth bit.
    "halves of halves in bfloat16": program(
        parameter("p0", shape=(17,), dtype="bfloat16"),
        parameter("p1", shape=(17,), dtype="bfloat16", use="checkpointed_reentrant"),
        accumulations=(2,),
        backward="reentrant",
    ),
    # A group that no collective was issued on had no name when it was destroyed.
    "bound again for nothing": program(
        parameter(placements=("R", "R")),
        accumulations=(1, 1, 1),
        mesh=GRID,
        events=("plain", "plain", "rebind"),
    ),
    # A hook of the user comes after the hook that launches, so a launch may wait for it.
    "reductions behind hooks of others": program(
        parameter(),
        parameter("p1", dtype="bfloat16"),
        accumulations=(1, 1),
        mesh=MeshSpec((2,), ("dp",)),
        backward="hooks_of_others",
    ),
}

ON_FAKE = {
    # A thread that the program started had torch's streams, and not those of its rank.
    "a gradient that is moved on a thread": program(
        parameter(shape=(7,), use="jacobian_rows"),
        accumulations=(1, 4),
        mesh=MeshSpec((4,), ("dp",)),
        events=("set_to_none/no_backward", "plain"),
        backward="on_threads",
    ),
}

OF_DDP = {
    # Autograd keeps the ones that it starts with for the stream that multiplies them.
    "gradients of torch.autograd.grad beside": program(
        parameter(), launch="parameter_streams", backward="grad_beside"
    ),
}


class LeavesViewsBehind(PlainGrads):
    """Averages in one staging buffer, in which `.grad` stays unless a rank owns it.

    DeepSpeed's ZeRO-1 does; a reader of gradients gets those of the owners.
    """

    capabilities: ClassVar = Capabilities(reduction="mean", tensors="local")

    def wait(self) -> None:
        staging = torch.empty(max(p.numel() for p in self.parameters))
        owned = [self.reduced(staging, *each) for each in enumerate(self.parameters)]
        for parameter, gradient in zip(self.parameters, owned, strict=True):
            dist.all_reduce(gradient)
            parameter.grad = gradient.view_as(parameter)

    def reduced(
        self, staging: torch.Tensor, number: int, parameter: torch.Tensor
    ) -> torch.Tensor:
        staged = staging[: parameter.numel()].copy_(parameter.grad.view(-1))
        parameter.grad.data = staged.view_as(parameter)
        dist.all_reduce(staged.div_(dist.get_world_size()))
        if number % dist.get_world_size() != dist.get_rank():
            return torch.zeros_like(staged)
        owned = staged.clone()
        parameter.grad.data = owned.view_as(parameter)
        return owned


OF_DEEPSPEED = {
    # The views gave their names to gradients of others that passed through the buffer later.
    "views that were left in a staging buffer": program(
        *(parameter(f"p{number}", shape=(2,)) for number in range(4)),
        mesh=MeshSpec((2,), ("dp",)),
    ),
}
PLAYED = [
    *(("synchronizer", scenario) for scenario in PROGRAMS.values()),
    *(("ddp", scenario) for scenario in OF_DDP.values()),
    *((f"{__name__}:LeavesViewsBehind", each) for each in OF_DEEPSPEED.values()),
]
NAMES = [*PROGRAMS, *OF_DDP, *OF_DEEPSPEED]


@pytest.mark.parametrize("scenario", ON_FAKE.values(), ids=ON_FAKE)
def test_no_alarm_on_fake(scenario: Scenario) -> None:
    found = resolve("synchronizer")
    run = FakeBackend().run(scenario, found)
    assert check(scenario, run, found.capabilities) == []


@pytest.mark.parametrize(("subject", "scenario"), PLAYED, ids=NAMES)
def test_a_right_subject_raises_no_alarm(subject: str, scenario: Scenario) -> None:
    found = resolve(subject)
    run = SimBackend().run(scenario, found)
    assert run.fault is None
    assert check(scenario, run, found.capabilities) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("use", "overflow"), [*zip(USES, itertools.cycle(["inf", "nan"]), strict=False)]
)
def test_a_gradient_that_overflows_stays_with_its_parameter(
    use: str, overflow: str
) -> None:
    first, last = parameter(shape=(3,)), parameter("p2", shape=(3,), gradient=overflow)
    between = parameter("p1", shape=(3,), use=use, gradient=overflow)
    scenario = program(
        first, between, last, mesh=MeshSpec((2,), ("dp",)), accumulations=(2, 1)
    )
    assert violations(PlainGrads, scenario) == []
