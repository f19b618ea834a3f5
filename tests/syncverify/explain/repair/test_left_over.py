"""A value that a step leaves in a subject is reported if its reset mends the next step."""

from functools import cache
from typing import Any

import pytest
import torch.distributed as dist
from torch import nn

from syncverify.explain.case import Case
from syncverify.explain.repair.left_over import left_over
from syncverify.judge.evidence import Evidence
from syncverify.judge.violation import Violation
from syncverify.playing.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from syncverify.subjects.bugbank.bases.placements import local_grad
from syncverify.subjects.bugbank.bases.plain_grads import CountsHookCalls, PlainGrads
from syncverify.subjects.subject import resolve
from tests.programs import violations


class KeepsCounts(CountsHookCalls):
    def zero_grad(self) -> None:
        PlainGrads.zero_grad(self)


class Bucket:
    __slots__ = ("parameters", "ready")

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters
        self.ready: set[nn.Parameter] = set()


class KeepsReady(PlainGrads):
    """Sends a bucket when all its parameters are ready, and ready they stay."""

    def bind(self) -> None:
        self.buckets = [Bucket(self.parameters)]
        self.step = 0
        for parameter in self.parameters:
            hook = parameter.register_post_accumulate_grad_hook(self.note)
            self.handles.append(hook)

    def note(self, parameter: nn.Parameter) -> None:
        bucket = self.buckets[0]
        bucket.ready.add(parameter)
        if len(bucket.ready) == len(bucket.parameters):
            for each in bucket.parameters:
                self.reduce(each.grad)  # type: ignore[arg-type]

    def wait(self) -> None:
        self.step += 1


class KeepsWorks(PlainGrads):
    """Writes the sums of all steps into `.grad`, the old ones too."""

    def bind(self) -> None:
        self.works: list[Any] = []
        self.number_of_steps = 0

    def wait(self) -> None:
        self.number_of_steps += 1
        for parameter in self.parameters:
            sum_ = local_grad(parameter).clone()
            group = parameter.device_mesh.get_group(0)  # type: ignore[attr-defined]
            work = dist.all_reduce(sum_, group=group, async_op=True)
            self.works.append((parameter, sum_, work))
        for parameter, sum_, work in reversed(self.works):
            work.wait()
            local_grad(parameter).copy_(sum_)


class KeepsTwoThings(KeepsWorks):
    """Also remembers that a step is done, and does nothing in the next one."""

    def bind(self) -> None:
        super().bind()
        self.is_done = False

    def wait(self) -> None:
        if self.is_done:
            return
        super().wait()
        self.is_done = True


class IsWrongInLaterSteps(PlainGrads):
    """Counts its steps, and is wrong for another reason: what a hook remembers."""

    def bind(self) -> None:
        self.step = 0
        seen = list[nn.Parameter]()
        for parameter in self.parameters:
            hook = parameter.register_post_accumulate_grad_hook(seen.append)
            self.handles.append(hook)
        self.seen = lambda: len(seen)

    def wait(self) -> None:
        self.step += 1
        super().wait()
        if self.seen() > 2:
            local_grad(self.parameters[0]).mul_(5)


@cache
def found_in(subject: type, accumulations: tuple[int, ...]) -> FoundViolation | None:
    specs = tuple(ParameterSpec(f"p{n}", (2,), ("R",)) for n in range(2))
    scenario = Scenario(MeshSpec((2,), ("dp",)), specs, accumulations, 1 << 20)
    found = violations(subject, scenario)
    return FoundViolation(found[0], scenario) if found else None


def left_over_lines(
    subject: type, accumulations: tuple[int, ...] = (1, 1)
) -> list[str]:
    entry = found_in(subject, accumulations)
    assert entry is not None
    return [e.text for e in left_over(Case(entry, resolve(subject), SimBackend()))]


pytestmark = pytest.mark.slow  # each plays a scenario several times

COUNT = "self.counts[{}] is {} where step 1 begins, and was 0 where step 0 began"
SIZE = "self.{} holds 2 elements where step 1 begins, and held 0 where step 0 began"
FLAG = "self.is_done is True where step 1 begins, and was False where step 0 began"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("subject", "accumulations", "lines"),
    [
        (KeepsCounts, (2, 2), [COUNT.format("p0", 2), COUNT.format("p1", 2)]),
        (KeepsReady, (1, 1), [SIZE.format("buckets[0].ready")]),
        (KeepsWorks, (1, 1), [SIZE.format("works")]),
        (KeepsTwoThings, (1, 1), [SIZE.format("works"), FLAG]),
    ],
)
def test_what_is_left_over_is_reported(
    subject: type, accumulations: tuple[int, ...], lines: list[str]
) -> None:
    assert left_over_lines(subject, accumulations) == lines
    assert left_over_lines(subject, accumulations) == lines


def test_a_number_of_steps_is_not_reported() -> None:
    assert left_over_lines(IsWrongInLaterSteps) == []


def test_a_right_subject_has_nothing_left_over() -> None:
    assert found_in(CountsHookCalls, (1, 1)) is None
    scenario = Scenario(
        MeshSpec((2,), ("dp",)), (ParameterSpec("p0", (2,), ("R",)),), (1, 1), 1 << 20
    )
    violation = Violation("a property", "scaled", "", (0,), evidence=Evidence(step=1))
    entry = FoundViolation(violation, scenario)
    assert left_over(Case(entry, resolve(CountsHookCalls), SimBackend())) == ()
