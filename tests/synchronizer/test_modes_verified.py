"""The harness on modes in which sums travel another way than by one all-reduce."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from studies.stand_ins.modes import (
    ScattersAndGathers,
    SumsInAHook,
    TellsWhatItUsed,
    UsualMode,
)
from syncverify import verify
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig
from syncverify.synchronizer.hooks import bf16_error_feedback
from tests.programs import identities


class ChecksSumsOfAHook(SumsInAHook):
    """Leaves the sums to a comm hook, and checks that they are finite."""

    config = replace(SumsInAHook.config, check_finite=True)


class LeavesNone(UsualMode):
    """Clears gradients to None; the first gradients of a step are copied over the old bucket."""

    def zero_grad(self, **_: object) -> None:
        super().zero_grad(set_to_none=True)


class MarksByHand(GradientSynchronizer):
    """Adds gradients by hand, as zero-bubble schedules do, and marks every other one."""

    def __init__(
        self, param_groups: list[list[nn.Parameter]], size_mb: float, required: int
    ) -> None:
        config = SynchronizerConfig(allow_local_only=True)
        super().__init__(param_groups, size_mb, required, config=config)
        listed = {parameter: None for group in param_groups for parameter in group}
        self._trained = [each for each in listed if each.requires_grad]

    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        """Leave half of the parameters to backward, and mark the others."""
        del is_last
        loss, by_hand = compute_loss(), self._trained[::2]
        by_backward = self._trained[1::2]
        gradients = torch.autograd.grad(loss, by_hand, retain_graph=bool(by_backward))
        if by_backward:
            loss.backward(inputs=by_backward)
        for parameter, gradient in zip(by_hand, gradients, strict=True):
            parameter.grad = (
                gradient if parameter.grad is None else parameter.grad + gradient
            )
            self.mark_ready(parameter)


SUBJECTS = [
    ScattersAndGathers,
    SumsInAHook,
    ChecksSumsOfAHook,
    LeavesNone,
    TellsWhatItUsed,
]


@pytest.mark.long
@pytest.mark.parametrize("subject", SUBJECTS)
def test_the_harness_finds_nothing(subject: type[UsualMode]) -> None:
    verify(subject, backend="sim", ranks=4, examples=4, seed=0)


class FeedsErrorsBack(UsualMode):
    """Sums by the hook that is shipped."""

    config = replace(UsualMode.config, comm_hook=bf16_error_feedback)


@pytest.mark.parametrize("event", ["failing_collectives", "failing_collectives/first"])
@pytest.mark.parametrize(
    "subject", [FeedsErrorsBack, ScattersAndGathers, SumsInAHook, TellsWhatItUsed]
)
def test_a_collective_that_fails_is_not_hidden(
    subject: type[UsualMode], event: str
) -> None:
    weights = tuple(ParameterSpec(f"p{n}", (3,), ("R",)) for n in range(2))
    scenario = Scenario(MeshSpec((2,), ("dp",)), weights, (1,), 12, events=(event,))
    assert identities(subject, scenario) == set()


@pytest.mark.nightly
def test_the_harness_finds_nothing_in_gradients_that_are_marked() -> None:
    verify(MarksByHand, backend="sim", ranks=4, examples=60, seed=0)
