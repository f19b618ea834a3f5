"""Numbers that are no gradients may be reduced early; copies of gradients may not."""

from typing import ClassVar

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.backends.sim import SimBackend
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.judge.properties import check
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import resolve

PARAMETERS = tuple(
    ParameterSpec(f"p{n}", (), ("R",), dtype="bfloat16") for n in range(3)
)
TWO_MICRO_BATCHES = Scenario(MeshSpec((2,), ("dp",)), PARAMETERS, (2,), 1 << 20)


class ReducesNumbers(PlainGrads):
    """Right: sums a number of tokens in each micro-batch."""

    capabilities: ClassVar = Capabilities()

    @override
    def bind(self) -> None:
        for parameter in self.parameters:
            hook = parameter.register_post_accumulate_grad_hook(self.tell)
            self.handles.append(hook)

    def tell(self, parameter: torch.Tensor) -> None:
        dist.all_reduce(self.number(parameter))

    def number(self, parameter: torch.Tensor) -> torch.Tensor:
        return torch.ones(1)


class ReducesNorms(ReducesNumbers):
    """Right: sums the norm of all gradients, as monitors of gradient noise do."""

    @override
    def tell(self, parameter: torch.Tensor) -> None:
        grads = [p.grad for p in self.parameters if p.grad is not None]
        if len(grads) == len(self.parameters):
            parts = [grad.to_local().double().reshape(-1) for grad in grads]
            dist.all_reduce(torch.cat(parts).norm())


class ReducesHalvedCopies(ReducesNumbers):
    @override
    def number(self, parameter: torch.Tensor) -> torch.Tensor:
        return parameter.grad.to_local().double() / 2


class ReducesNegatedBuckets(ReducesNumbers):
    @override
    def number(self, parameter: torch.Tensor) -> torch.Tensor:
        grads = [p.grad for p in self.parameters if p.grad is not None]
        return torch.stack([-grad.to_local() for grad in grads])


def causes(subject: type) -> set[str]:
    found = resolve(subject)
    run = SimBackend().run(TWO_MICRO_BATCHES, found)
    violations = check(TWO_MICRO_BATCHES, run, found.capabilities)
    return {violation.cause for violation in violations}


def test_control_numbers_are_no_gradients() -> None:
    assert causes(ReducesNumbers) == set()
    assert causes(ReducesNorms) == set()


def test_scaled_copies_of_gradients_are_reduced_early() -> None:
    assert causes(ReducesHalvedCopies) == {"reduced_early"}
    assert causes(ReducesNegatedBuckets) == {"reduced_early"}
