"""Terms that cancel out show sums over micro-batches in the dtype of the wire."""

import pytest
import torch
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.placements import local, local_grad
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.contributions import contribution
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from tests.programs import identities
from tests.quality.planted.first_drawn import first_drawn

CANCELLING = ParameterSpec("w", (2, 3), ("R",), gradient="cancelling")
SCENARIO = Scenario(MeshSpec((4,), ("dp",)), (CANCELLING,), (3,), 64)
ROUNDED = ("gradient_equals_reference", "rounded")
HYBRID = "hsdp:{},reduce_dtype=bfloat16"


class SendsNarrow(PlainGrads):
    """Adds up micro-batches in the dtype of the gradient, and ranks in bfloat16."""

    capabilities = Capabilities(varying_accumulations=True, wire_dtype="bfloat16")

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        sent = gradient.to(torch.bfloat16)
        super().reduce(sent)
        local(gradient).copy_(local(sent))


class HoldsSumsNarrow(SendsNarrow):
    """Holds the sum of the micro-batches in bfloat16."""

    @override
    def bind(self) -> None:
        self.held: dict[nn.Parameter, torch.Tensor] = {}
        self.before: dict[nn.Parameter, torch.Tensor] = {}
        for parameter in self.parameters:
            hook = parameter.register_post_accumulate_grad_hook(self.hold)
            self.handles.append(hook)

    def hold(self, parameter: nn.Parameter) -> None:
        now = local_grad(parameter).clone()
        added = (now - self.before.get(parameter, 0)).to(torch.bfloat16)
        self.held[parameter] = self.held.get(parameter, 0) + added
        self.before[parameter] = now

    @override
    def wait(self) -> None:
        for parameter, held in self.held.items():
            local_grad(parameter).copy_(held)
        super().wait()

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.held, self.before = {}, {}


def test_the_first_and_the_third_micro_batch_cancel_out() -> None:
    first, small, third = (
        contribution(SCENARIO, CANCELLING, rank=1, step=0, micro_batch=m)
        for m in range(3)
    )
    assert (first + third == 0).all()
    assert (first.abs() >= 256).all()
    assert (small.abs() <= 256).all()


def test_sums_that_are_held_in_the_dtype_of_the_wire_are_found() -> None:
    assert ROUNDED in identities(HoldsSumsNarrow, SCENARIO)
    assert identities(SendsNarrow, SCENARIO) == set()


def test_a_search_of_a_narrow_wire_finds_them_and_accuses_no_right_one() -> None:
    played = 0

    def is_wrong(scenario: Scenario) -> bool:
        nonlocal played
        played += 1
        assert identities(SendsNarrow, scenario) == set()
        return identities(HoldsSumsNarrow, scenario) != set()

    assert first_drawn(is_wrong, SendsNarrow.capabilities, 60) is not None
    assert played > 1


def test_a_search_of_plain_steps_meets_them() -> None:
    def is_met(scenario: Scenario) -> bool:
        return any(each.gradient == "cancelling" for each in scenario.parameters)

    assert first_drawn(is_met, Capabilities(), 500) is not None


@pytest.mark.slow
def test_fsdp2_holds_deferred_sums_in_the_dtype_of_the_wire() -> None:
    """See docs/findings.md."""
    assert ROUNDED in identities(HYBRID.format("all_reduce=last"), SCENARIO)
    assert identities(HYBRID.format("gradient_sync=each"), SCENARIO) == set()
