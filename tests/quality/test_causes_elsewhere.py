"""Causes that lie elsewhere than where a run first goes wrong: hooks, state, contents."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.placements import local, local_grad
from syncverify.bugbank.bases.plain_grads import CountsHookCalls, PlainGrads
from syncverify.judge.consequences import other_forms, shown_by
from syncverify.judge.signs import Circumstance, Clues
from syncverify.judge.violation import Violation
from syncverify.report.hints import certainty, hint_of
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from tests.programs import violations
from tests.quality.planted.planted import VALUE


def program(*counts: int, ranks: int = 2) -> Scenario:
    """Return a program of one parameter with these micro-batches per step."""
    specs = (ParameterSpec("p0", (3,), ("R",)),)
    mesh = MeshSpec((ranks,), ("dp",))
    return Scenario(mesh, specs, counts, 1 << 20)


def causes(subject: type, scenario: Scenario) -> set[str]:
    return {each.cause for each in violations(subject, scenario)}


class InTensorHooks(CountsHookCalls):
    """Keeps gradients at zero rather than None, and reduces them in tensor hooks."""

    capabilities = Capabilities()

    @override
    def bind(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        self.zero_grad()
        for parameter in self.parameters:
            self.handles += self.hooks(parameter)

    def hooks(self, parameter: nn.Parameter) -> list[Any]:
        return [parameter.register_hook(lambda _: self.note(parameter))]

    @override
    def zero_grad(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)

    @override
    def unbind(self) -> None:
        PlainGrads.unbind(self)
        for parameter in self.parameters:
            parameter.grad = None


class InMultiGradHooks(InTensorHooks):
    """Uses torch's hook of several tensors."""

    @override
    def hooks(self, parameter: nn.Parameter) -> list[Any]:
        return [
            torch.autograd.graph.register_multi_grad_hook(
                [parameter], lambda _: self.note(parameter)
            )
        ]


class InNodePrehooks(InTensorHooks):
    """Hooks the node that accumulates, before it runs."""

    @override
    def hooks(self, parameter: nn.Parameter) -> list[Any]:
        node = parameter.view_as(parameter).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
        self.nodes = [*getattr(self, "nodes", []), node]
        return [node.register_prehook(lambda _: self.note(parameter))]


class InNodeHooks(InNodePrehooks):
    """Is right: hooks of the node itself run after it."""

    @override
    def hooks(self, parameter: nn.Parameter) -> list[Any]:
        node = parameter.view_as(parameter).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
        self.nodes = [*getattr(self, "nodes", []), node]
        return [node.register_hook(lambda *_: self.note(parameter))]


class WithoutGradients(InTensorHooks):
    """Leaves `.grad` to autograd, so that it is None in the first hook."""

    @override
    def zero_grad(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters:
            parameter.grad = None

    @override
    def note(self, parameter: nn.Parameter) -> None:
        local(parameter.grad).mul_(1)  # type: ignore[arg-type]  # the mistake
        super().note(parameter)


class InAccumulatedHooks(InTensorHooks):
    """Is right: the hooks run after the gradient was added."""

    @override
    def hooks(self, parameter: nn.Parameter) -> list[Any]:
        return [parameter.register_post_accumulate_grad_hook(self.note)]


@pytest.mark.parametrize("subject", [InTensorHooks, InMultiGradHooks, InNodePrehooks])
@pytest.mark.parametrize("count", [1, 2])
def test_a_hook_before_accumulation_is_the_cause(subject: type, count: int) -> None:
    found = violations(subject, program(count))
    values = [v for v in found if v.property == VALUE]
    assert {each.cause for each in values} == {"hook_too_early"}
    assert "inside of a hook that runs before" in values[0].summary
    assert "`register_post_accumulate_grad_hook`" in hint_of(values[0].cause)


@pytest.mark.parametrize("hooks", [InTensorHooks, InNodePrehooks])
def test_a_gradient_that_is_not_there_yet_is_the_same_cause(
    hooks: type[InTensorHooks],
) -> None:
    subject = type("Subject", (WithoutGradients,), {"hooks": hooks.hooks})
    (found,) = violations(subject, program(1))
    assert found.identity == ("every_rank_finishes", "hook_too_early")


@pytest.mark.parametrize("subject", [InAccumulatedHooks, InNodeHooks])
def test_hooks_after_accumulation_are_right(subject: type) -> None:
    assert not violations(subject, program(2, 2))


class IsNotReset(CountsHookCalls):
    """Counts on in the second step."""

    capabilities = Capabilities()

    @override
    def zero_grad(self) -> None:
        PlainGrads.zero_grad(self)


def test_a_step_that_starts_where_the_last_one_ended_was_not_reset() -> None:
    found = violations(IsNotReset, program(2, 2))
    values = [v for v in found if v.property == VALUE]
    assert {each.cause for each in values} == {"not_reset"}
    assert "step 0 reduced it at" in values[0].summary


def test_a_step_unlike_the_one_before_tells_nothing_of_state() -> None:
    assert "not_reset" not in causes(IsNotReset, program(1, 2))


def test_what_is_wrong_after_a_right_step_alone_is_a_form_of_state_not_reset() -> None:
    state = [v for v in violations(IsNotReset, program(2, 2)) if v.cause == "not_reset"]
    unreduced = [
        v for v in violations(IsNotReset, program(2, 2)) if v.cause == "not_reduced"
    ]
    assert unreduced, "the second step exchanged too little"
    clues = {
        each.identity: each.clues | shown_by(each.identity, each.evidence)
        for each in [*state, *unreduced]
    }
    assert set(other_forms([*clues], clues)) == {unreduced[0].identity}


class LeavesHooks(CountsHookCalls):
    """Forgets its parameters in unbind(), and leaves hooks that need them."""

    capabilities = Capabilities()

    @override
    def unbind(self) -> None:
        self.zero_grad()
        self.counts = {}


def test_an_error_of_a_hook_after_unbind_is_a_hook_that_is_left() -> None:
    found = violations(LeavesHooks, program(1, ranks=1))
    assert {each.identity for each in found} == {
        ("unbind_restores_parameters", "hook_left")
    }


class MultipliesByFive(PlainGrads):
    """Is wrong by a factor, in every step."""

    capabilities = Capabilities()

    @override
    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            local_grad(parameter).mul_(5)


def test_what_is_wrong_in_every_step_is_no_state() -> None:
    found = violations(MultipliesByFive, program(2, 2))
    state = Violation(VALUE, "not_reset", "")
    clues = {
        each.identity: each.clues | shown_by(each.identity, each.evidence)
        for each in [state, *found]
    }
    assert not clues[state.identity].explain(clues[found[0].identity])


class SendsCopiesInAnOrderOfItsOwn(PlainGrads):
    """Sends copies in one buffer, in the order of parameters on rank 0 and back on rank 1."""

    capabilities = Capabilities()

    @override
    def wait(self) -> None:
        order = self.parameters[:: -1 if dist.get_rank() else 1]
        buffer = torch.cat([local_grad(each).reshape(-1) for each in order])
        dist.all_reduce(buffer)
        for parameter, part in zip(order, buffer.split(3), strict=True):
            local_grad(parameter).copy_(part)


def test_gradients_that_meet_in_copies_are_a_mismatch_of_buckets() -> None:
    specs = (ParameterSpec("p0", (3,), ("R",)), ParameterSpec("p1", (3,), ("R",)))
    scenario = Scenario(MeshSpec((2,), ("dp",)), specs, (1,), 1 << 20)
    found = violations(SendsCopiesInAnOrderOfItsOwn, scenario)
    assert found[0].identity == (VALUE, "bucket_mismatch")
    assert (
        "on rank 0 it is sent from element 0 of a bucket, and on rank 1 it is not"
        in found[0].summary
    )


class CopiesBackAnotherPart(SendsCopiesInAnOrderOfItsOwn):
    """Orders differ; rank 0 copies the sums back, and rank 1 keeps its own gradients."""

    @override
    def wait(self) -> None:
        own = [local_grad(each).clone() for each in self.parameters]
        super().wait()
        if dist.get_rank():
            for parameter, kept in zip(self.parameters, own, strict=True):
                local_grad(parameter).copy_(kept)


def test_nothing_is_certain_of_a_result_where_ranks_send_other_gradients() -> None:
    specs = (ParameterSpec("p0", (3,), ("R",)), ParameterSpec("p1", (3,), ("R",)))
    scenario = Scenario(MeshSpec((2,), ("dp",)), specs, (1,), 1 << 20)
    found = violations(CopiesBackAnotherPart, scenario)
    assert "result_dropped" not in {
        each.cause
        for each in found
        if certainty(each.cause, each.evidence).startswith("certain")
    }
    assert "bucket_mismatch" in {each.cause for each in found}


def test_a_disagreement_of_ranks_explains_that_a_second_play_differs() -> None:
    match = Violation("collectives_match_across_ranks", "bucket_mismatch", "")
    other = Violation(
        "subject_is_deterministic",
        "acts_otherwise",
        "",
        clues=Clues(explained_by=frozenset({frozenset({Circumstance.OTHER_CONTENTS})})),
    )
    clues = {
        each.identity: each.clues | shown_by(each.identity, each.evidence)
        for each in (match, other)
    }
    assert other_forms([*clues], clues) == {other.identity: match.identity}


class SumsOverAllRanksForEachAxis(PlainGrads):
    """Takes the group of all ranks in the place of that of each mesh axis."""

    @override
    def wait(self) -> None:
        for parameter in self.parameters:
            for _ in parameter.placements:
                dist.all_reduce(local_grad(parameter))


@pytest.mark.parametrize("gradient", ["finite", "nan"])
def test_the_ranks_of_each_axis_are_named_where_all_were_taken(gradient: str) -> None:
    spec = ParameterSpec("p0", (3,), ("R", "R"), gradient=gradient)
    scenario = Scenario(MeshSpec((2, 2), ("dp", "tp")), (spec,), (1,), 1 << 20)
    found = violations(SumsOverAllRanksForEachAxis, scenario)
    violation = next(each for each in found if each.property == VALUE)
    assert violation.cause == "reduced_twice"
    assert "dp has ranks [0, 2] and tp has ranks [0, 1]" in violation.summary
