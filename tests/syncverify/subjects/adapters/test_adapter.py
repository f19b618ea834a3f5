"""An adapter cleans up for a synchronizer that cannot, and hides nothing of one that can."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from syncverify.errors import SubjectError
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.adapters import (
    Adapter,
    HooksAdapter,
    LossModule,
    OptimizerAdapter,
    RevealingOptimizer,
)
from syncverify.subjects.subject import resolve
from syncverify.subjects.subject_path import path_of
from tests.programs import violations

TWO_RANKS = Scenario(
    MeshSpec((2,), ("dp",)),
    (ParameterSpec("p0", (2, 3), ("R",)), ParameterSpec("p1", (4,), ("R",))),
    (2, 1),
    64,
)


def broken(adapter: type[Adapter]) -> set[str]:
    found = violations(adapter, TWO_RANKS)
    return {violation.property for violation in found}


class Litters:
    """A right synchronizer that moves parameters and leaves all that it attached."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.is_last = True
        self.nodes = [self.attach(parameter) for parameter in self.parameters]

    def attach(self, parameter: nn.Parameter) -> Any:
        parameter.data = parameter.data.clone()
        parameter.register_hook(lambda gradient: gradient)
        parameter.mark = self
        node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        node.register_hook(lambda *_: self.reduce(parameter))
        return node

    def reduce(self, parameter: nn.Parameter) -> None:
        if self.is_last:
            parameter.grad.div_(dist.get_world_size())
            dist.all_reduce(parameter.grad)


class LittersSubject(HooksAdapter):
    def wrap(self, module: LossModule) -> Litters:
        return Litters(module.parameters())

    def announce(self, *, is_last: bool) -> None:
        self.wrapped.is_last = is_last


class PretendsToCleanUp(LittersSubject):
    def unwrap(self) -> None:
        """Call nothing."""


class ChangesParameters(LittersSubject):
    def synchronize(self) -> None:
        self.parameters[0].data.add_(1)


class NeverReduces(LittersSubject):
    def announce(self, *, is_last: bool) -> None:
        self.wrapped.is_last = False


def test_litter_without_a_call_that_removes_it_is_no_violation() -> None:
    assert broken(LittersSubject) == set()


def test_litter_of_a_synchronizer_that_cleans_up_is_found() -> None:
    assert "unbind_restores_parameters" in broken(PretendsToCleanUp)


def test_parameters_that_change_are_found_although_their_memory_moved() -> None:
    assert "unbind_restores_parameters" in broken(ChangesParameters)


def test_gradients_that_are_not_reduced_are_found() -> None:
    assert "gradient_equals_reference" in broken(NeverReduces)


class HasUnbind:
    def unbind(self) -> None: ...


class HasUnbindSubject(HooksAdapter):
    def wrap(self, module: LossModule) -> HasUnbind:
        return HasUnbind()


class CallsUnbind(HasUnbindSubject):
    def unwrap(self) -> None:
        self.wrapped.unbind()


class SharesState(LittersSubject):
    state_of = (Litters,)


def bind(adapter: type[Adapter]) -> Adapter:
    bound = adapter([[nn.Parameter(torch.ones(3))]], 1.0, 1)
    bound.bind()
    return bound


def test_an_unbind_that_would_not_be_called_is_refused() -> None:
    with pytest.raises(
        SubjectError,
        match=r"^HasUnbindSubject wraps HasUnbind, which has unbind\(\); "
        r"hint: define unwrap\(\) to call it$",
    ):
        bind(HasUnbindSubject)
    assert bind(CallsUnbind).wrapped


def test_state_of_the_process_needs_processes() -> None:
    with pytest.raises(
        SubjectError, match=r"^SharesState.state_of needs ranks that are processes; "
    ):
        bind(SharesState)


class WrapsNothing(HooksAdapter):
    """A mistake: `wrap()` is missing."""


def test_an_adapter_without_wrap_is_no_subject() -> None:
    with pytest.raises(SubjectError) as refusal:
        resolve(WrapsNothing)
    assert str(refusal.value) == (
        f"subject {path_of(WrapsNothing)!r} lacks wrap(): Adapter leaves it to its subclasses"
    )


class OneStep:
    """Reduces and steps, and keeps the gradients as views into one buffer."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters
        self.inner = RevealingOptimizer(parameters)
        self.buffer = torch.zeros(sum(p.numel() for p in parameters))
        views = self.buffer.split([p.numel() for p in parameters])
        self.views = [v.view_as(p) for v, p in zip(views, parameters, strict=True)]
        self.zero_grad()

    def step(self) -> None:
        self.buffer.div_(dist.get_world_size())
        dist.all_reduce(self.buffer)
        self.inner.step()

    def zero_grad(self) -> None:
        self.buffer.zero_()
        for parameter, view in zip(self.parameters, self.views, strict=True):
            assert parameter.grad is None or parameter.grad is view
            parameter.grad = view


class OneStepSubject(OptimizerAdapter):
    def wrap(self, module: LossModule) -> OneStep:
        return OneStep(list(module.parameters()))


class StepsAlone(OneStepSubject):
    def step(self) -> None:
        self.wrapped.inner.step()


def test_an_optimizer_finds_its_own_gradients_again() -> None:
    assert broken(OneStepSubject) == set()


def test_a_step_that_reduces_nothing_is_found() -> None:
    assert "gradient_equals_reference" in broken(StepsAlone)
