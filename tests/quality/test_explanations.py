"""Explanations name the mistake that was made, and no likelier one that was not."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.bugbank.bases.in_wait import ReducesInWait
from syncverify.bugbank.bases.placements import local, local_grad
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.report.evidence import remedy_of
from syncverify.report.hints import certainty
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from syncverify.search.shrinking import rank_of
from syncverify.trace.source_lines import with_code
from tests.programs import violations


def program(*shapes: tuple[int, ...], count: int = 1, ranks: int = 2) -> Scenario:
    """Return a step of `count` micro-batches with replicated parameters of these shapes."""
    listed = tuple(
        ParameterSpec(f"p{n}", shape, ("R",)) for n, shape in enumerate(shapes)
    )
    return Scenario(MeshSpec((ranks,), ("dp",)), listed, (count,), 1 << 20)


def texts(subject: type, scenario: Scenario) -> str:
    return "\n".join(each.summary for each in violations(subject, scenario))


class WaitsForNothing(ReducesInWait):
    """Launches reductions, and waits for none of them."""

    @override
    def finish(self, bucket: object) -> None:
        pass


def test_a_reduction_that_nothing_waited_for() -> None:
    summaries = texts(WaitsForNothing, program((3,)))
    assert "nothing waited for the result" in summaries
    assert "never reduced" not in summaries


class GivesOneViewToTwo(PlainGrads):
    """Lets the gradients of all parameters begin at the same byte."""

    capabilities: ClassVar = Capabilities()

    @override
    def bind(self) -> None:
        buffer = torch.zeros(5)
        for parameter in self.parameters:
            part = buffer[: local(parameter).numel()].view(local(parameter).shape)
            parameter.grad = type(parameter.data).from_local(
                part, parameter.device_mesh, parameter.placements, run_check=False
            )


def test_two_gradients_in_the_same_bytes() -> None:
    summaries = texts(GivesOneViewToTwo, program((3,), (4,)))
    assert "its memory is also that of the gradient of 'p1'" in summaries
    assert "wrong values" not in summaries


class LosesTheFirstThree(PlainGrads):
    """Drops each gradient after its third micro-batch."""

    capabilities: ClassVar = Capabilities()

    @override
    def bind(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters:
            hook = parameter.register_post_accumulate_grad_hook(self.note)
            self.handles.append(hook)

    def note(self, parameter: torch.Tensor) -> None:
        self.counts[parameter] += 1
        if self.counts[parameter] == 3:
            parameter.grad = None


def test_the_first_of_many_micro_batches() -> None:
    summaries = texts(LosesTheFirstThree, program((3,), count=12, ranks=3))
    assert "the first 3 of 12 micro-batches are missing on every rank" in summaries


class IsOffByOne(PlainGrads):
    """Adds 1 to each element of a sum."""

    capabilities: ClassVar = Capabilities()

    @override
    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            local_grad(parameter).add_(1)


def test_a_small_error_is_no_rounding() -> None:
    found = violations(IsOffByOne, program((17,)))
    assert "rounded" not in {each.cause for each in found}


class SkipsOne(PlainGrads):
    """Does not reduce the first parameter on rank 1, from the second step on."""

    capabilities: ClassVar = Capabilities()
    step = 0

    @override
    def wait(self) -> None:
        for index, parameter in enumerate(self.parameters):
            if self.step == 0 or dist.get_rank() != 1 or index != 0:
                self.reduce(parameter.grad)
        self.step += 1


def test_the_rank_that_skipped_a_collective_is_named() -> None:
    summaries = texts(SkipsOne, replace(program((3,), (4,)), accumulations=(1, 1)))
    assert "rank 1 skipped all_reduce SUM of 3 x float32" in summaries


class DropsTheResult(PlainGrads):
    """Reduces copies, and copies no sum back."""

    capabilities: ClassVar = Capabilities()

    @override
    def wait(self) -> None:
        for parameter in self.parameters:
            copy = local_grad(parameter).clone()
            dist.all_reduce(copy)


def test_a_result_that_is_not_copied_back_was_reduced() -> None:
    summaries = texts(DropsTheResult, program((3,)))
    assert "never reduced" not in summaries
    assert "and the result never came into `.grad`" in summaries


class LosesSome(LosesTheFirstThree):
    """Loses a small part of the sum on one rank."""

    @override
    def note(self, parameter: torch.Tensor) -> None:
        self.counts[parameter] += 1
        if self.counts[parameter] == 12 and dist.get_rank() == 1:
            local_grad(parameter).sub_(1 + local_grad(parameter) % 3)


def test_a_lost_contribution_is_no_rounding() -> None:
    found = violations(LosesSome, program((3,), (17,), count=12, ranks=4))
    assert "rounded" not in {each.cause for each in found}


class SendsTheParameter(PlainGrads):
    """A hook is given the parameter, and all-reduces it."""

    capabilities: ClassVar = Capabilities()

    @override
    def bind(self) -> None:
        for parameter in self.parameters:
            hook = parameter.register_post_accumulate_grad_hook(self.note)
            self.handles.append(hook)

    def note(self, parameter: torch.Tensor) -> None:
        dist.all_reduce(local(parameter).detach().clone())

    @override
    def wait(self) -> None:
        pass


def test_a_collective_that_sends_the_parameter_sends_no_gradient() -> None:
    found = violations(SendsTheParameter, program((3,), count=2))
    summaries = "\n".join(each.summary for each in found)
    assert "reduced_early" not in {each.cause for each in found}
    assert "they sent the parameter 'p0' itself" in summaries


class Doubles(PlainGrads):
    """Doubles each sum."""

    capabilities: ClassVar = Capabilities()

    @override
    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            local_grad(parameter).mul_(2)


def test_a_doubled_gradient_of_two_ranks_has_several_readings() -> None:
    (found,) = violations(Doubles, program((3,), ranks=2))
    readings = " ".join([found.summary, *found.evidence.readings])
    assert "counted twice" in readings
    assert "one of several" in certainty(found.cause, found.evidence)


class RaisesAnId(PlainGrads):
    """Raises an error whose message has the id of an object."""

    @override
    def wait(self) -> None:
        raise KeyError(id(self), self)


def test_a_report_has_no_id_of_an_object() -> None:
    summaries = texts(RaisesAnId, program((3,)))
    assert "KeyError" in summaries
    assert not re.search(r"\d{9,}|0x[0-9a-f]{6,}", summaries)


class LaunchesAtOnce(SideStreams):
    """Launches a bucket at its first gradient, in a backward that it calls itself."""

    @override
    def is_ready(self, bucket: object) -> bool:
        return True

    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        compute_loss().backward()


def test_no_wait_is_proposed_before_the_backward_that_launches() -> None:
    found = violations(LaunchesAtOnce, program((3,), (4,)))
    remedies = [remedy_of(each) for each in found if each.evidence.unordered]
    assert remedies
    assert "run_micro_batch" not in " ".join(remedies)


def test_a_race_of_one_rank_tells_less_than_one_of_two() -> None:
    found = {
        ranks: next(
            FoundViolation(each, program((3,), (4,), ranks=ranks))
            for each in violations(LaunchesAtOnce, program((3,), (4,), ranks=ranks))
            if each.evidence.unordered
        )
        for ranks in (2, 3)
    }
    alone = replace(found[2], scenario=program((3,), ranks=1))
    assert [rank_of(each)[0] for each in (alone, *found.values())] == [
        True,
        False,
        False,
    ]


def test_the_lines_that_led_to_an_event_are_reported_with_their_code() -> None:
    (unordered, *_) = (
        each
        for each in violations(LaunchesAtOnce, program((3,), (4,)))
        if each.evidence.unordered
    )
    code = with_code(unordered.evidence.lines)
    assert any(each.code.endswith("self.launch(bucket)") for each in code)
    assert all(Path(each.line.file).is_file() for each in code)
