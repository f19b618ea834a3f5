"""A violation keeps the features that it needs, and no other one."""

from dataclasses import replace

import torch
from torch import nn
from typing_extensions import override

from syncverify.backends.sim import SimBackend
from syncverify.bugbank.bases.placements import local_grad
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.features import optional_features
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.judge import Judge
from syncverify.search.needed_features import with_needed_features
from syncverify.search.schedules import ScheduleChoice
from syncverify.subjects.subject import resolve

SCENARIO = Scenario(
    MeshSpec((2,), ()),
    (
        ParameterSpec("p0", (4, 4), ("R",), use="twice", num_listed=2),
        ParameterSpec("p1", (4,), ("R",), "float64", use="checkpointed"),
    ),
    (1, 1),
    2**20,
    events=("wait_twice", "plain"),
    backward="inputs",
    readiness="by_rank",
)


class DoublesTheSecondWait(PlainGrads):
    """Is wrong where wait() is called twice for gradients in float64."""

    capabilities = replace(
        Capabilities(), features=frozenset({"use", "backward", "event", "listed"})
    )
    num_waits = 0

    @override
    def wait(self) -> None:
        self.num_waits += 1
        if self.num_waits == 1:
            super().wait()
        elif any(p.dtype == torch.float64 for p in self.parameters):
            self.scale(self.parameters)

    def scale(self, parameters: list[nn.Parameter]) -> None:
        for parameter in parameters:
            local_grad(parameter).mul_(5)

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.num_waits = 0


def test_two_features_of_many_are_left() -> None:
    judge = Judge(
        resolve(DoublesTheSecondWait, "everything"), SimBackend(), ScheduleChoice(), 0
    )
    before = judge.judge_schedule(SCENARIO, DEFAULT_SCHEDULE)
    identity = next(
        each for each in before.violations if each[0] == "gradient_equals_reference"
    )
    found = with_needed_features(judge, before.violations[identity])
    assert len({*optional_features(SCENARIO)}) > 2
    assert {*optional_features(found.scenario)} == {
        ("event", "wait_twice"),
        ("dtype", "float64"),
    }
    assert found.violation.identity == identity


class DoublesBfloat16(DoublesTheSecondWait):
    """Is wrong for parameters in bfloat16, of any dtype of gradients."""

    @override
    def scale(self, parameters: list[nn.Parameter]) -> None:
        super().scale([each for each in parameters if each.dtype == torch.bfloat16])

    @override
    def wait(self) -> None:
        super().wait()
        self.scale(self.parameters)


def test_an_own_gradient_dtype_goes_without_the_dtype_of_the_parameter() -> None:
    parameter = ParameterSpec("p0", (4,), ("R",), "bfloat16", "float32")
    scenario = Scenario(MeshSpec((2,), ("dp",)), (parameter,), (1,), 2**20)
    judge = Judge(
        resolve(DoublesBfloat16, "everything"), SimBackend(), ScheduleChoice(), 0
    )
    before = judge.judge_schedule(scenario, DEFAULT_SCHEDULE)
    identity = next(
        each for each in before.violations if each[0] == "gradient_equals_reference"
    )
    found = with_needed_features(judge, before.violations[identity])
    assert [each.dtype for each in found.scenario.parameters] == ["bfloat16"]
    assert [*optional_features(found.scenario)] == []
