"""A line that waits for some of the handles is named, and never one that waits for all."""

import inspect
from typing import Any

import pytest
import torch.distributed as dist
from torch import nn
from typing_extensions import override

from syncverify.adapters import HooksAdapter, LossModule
from syncverify.backends.sim import SimBackend
from syncverify.judge.properties import check
from syncverify.repair.left_out import left_out
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation, LeftOut
from syncverify.subjects.subject import resolve

LONE = Scenario(
    MeshSpec((1,), ("dp",)), (ParameterSpec("p0", (), ("R",)),), (1,), 1 << 20
)


class Handles:
    """Starts a reduction in the hook of each parameter, and waits for some of them at the end."""

    first = slice(0, -1)

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.pending = list[Any]()
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self.reduce)

    def reduce(self, parameter: Any) -> None:
        self.pending.append(dist.all_reduce(parameter.grad, async_op=True))

    def finish(self) -> None:
        for work in self.pending[self.first]:
            work.wait()
        self.pending.clear()


class Unwaited(Handles):
    first = slice(0, 0)


class HandlesSubject(HooksAdapter):
    made: type[Handles] = Handles

    @override
    def wrap(self, module: LossModule) -> Handles:
        return self.made(self.parameters)

    @override
    def synchronize(self) -> None:
        self.wrapped.finish()


class UnwaitedSubject(HandlesSubject):
    made = Unwaited


def missing(adapter: type[HandlesSubject], scenario: Scenario) -> tuple[LeftOut, ...]:
    subject, backend = resolve(adapter), SimBackend()
    run = backend.run(scenario, subject)
    found = check(scenario, run, subject.capabilities)
    (race,) = (each for each in found if each.cause == "read_before_reduced")
    return left_out(FoundViolation(race, scenario), subject, backend)


@pytest.mark.slow
def test_the_wait_for_others_is_named() -> None:
    lines, first = inspect.getsourcelines(Handles)
    launch, wait = (
        first + next(n for n, line in enumerate(lines) if call in line)
        for call in ("all_reduce(", "work.wait()")
    )
    (named,) = missing(HandlesSubject, LONE)
    assert (named.line.line.number, named.line.code) == (wait, "work.wait()")
    place = f"{named.line.line.path}:{launch} in reduce"
    assert named.why == (
        f"waits for 1 of the 2 collectives of {place}, in a scenario with 2 parameters"
    )


@pytest.mark.slow
def test_without_any_wait_none_is_named() -> None:
    assert missing(UnwaitedSubject, LONE) == ()
