"""A state that a step leaves over is one violation, whatever it breaks in the next step."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.backends.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.search.drawing import Drawing
from syncverify.search.judge import Identity, Judge, JudgedRun
from syncverify.search.occurrences import Occurrences
from syncverify.search.schedules import ScheduleChoice
from syncverify.search.search import judge_each_scenario
from syncverify.subjects.subject import resolve

EARLY = ("accumulation_is_local_until_reduced", "reduced_early")
RAISED = ("every_rank_finishes", "raised_AttributeError")
IN_FLIGHT = ("bucket_is_exclusive_while_reducing", "touched_in_flight")

pytestmark = pytest.mark.long(8)


class OneBucketAGroup:
    """Sends the gradients of a parameter group together, once all of them are complete."""

    def __init__(
        self, param_groups: Any, bucket_size_mb: float, require_accumulations: int
    ) -> None:
        del bucket_size_mb
        self.groups = [[*group] for group in param_groups]
        self.need = require_accumulations
        self.count: dict[Any, int] = {}
        self.ready: dict[Any, set[Any]] = {}
        self.sent: list[tuple[Any, Sequence[Any], dist.Work]] = []
        self.flat: dict[Any, torch.Tensor] = {}
        self.handles: list[Any] = []

    def bind(self) -> None:
        for number, group in enumerate(self.groups):
            members: dict[Any, list[Any]] = {}
            for each in group:
                axes = self.axes(each)
                if each.requires_grad and axes:
                    members.setdefault((number, each.dtype, axes), []).append(each)
            for key, some in members.items():
                self.watch(key, some)

    def axes(self, each: Any) -> tuple[int, ...]:
        placements = getattr(each, "placements", ())
        return tuple(i for i, one in enumerate(placements) if one.is_replicate())

    def watch(self, key: Any, some: list[Any]) -> None:
        self.ready[key] = set()
        for each in some:
            self.count[each] = 0
            hook = lambda p: self.complete(key, some, p)  # noqa: E731
            self.handles.append(each.register_post_accumulate_grad_hook(hook))

    def complete(self, key: Any, some: list[Any], each: Any) -> None:
        self.count[each] += 1
        if self.count[each] >= self.need:
            self.ready[key].add(each)
            if len(self.ready[key]) == len(some):
                self.send(key, some)

    def send(self, key: Any, some: list[Any]) -> None:
        locals_ = [each.grad.to_local() for each in some]
        self.flat[key] = torch.cat([each.reshape(-1) for each in locals_])
        for axis in key[-1]:
            group = some[0].device_mesh.get_group(axis)
            work = dist.all_reduce(self.flat[key], group=group, async_op=True)
            if axis != key[-1][-1]:
                work.wait()
        self.sent.append((key, locals_, work))

    def wait(self) -> None:
        for key, locals_, work in self.sent:
            work.wait()
            parts = self.flat[key].split([each.numel() for each in locals_])
            for each, part in zip(locals_, parts, strict=True):
                each.copy_(part.view_as(each))
        self.reset()

    def reset(self) -> None:
        self.reset_sent()
        self.reset_count()
        self.reset_ready()

    def reset_sent(self) -> None:
        self.sent.clear()

    def reset_count(self) -> None:
        self.count = dict.fromkeys(self.count, 0)

    def reset_ready(self) -> None:
        for each in self.ready.values():
            each.clear()

    def zero_grad(self) -> None:
        for group in self.groups:
            for each in group:
                each.grad = None

    def unbind(self) -> None:
        for handle in self.handles:
            handle.remove()


class KeepsItsCount(OneBucketAGroup):
    @override
    def reset_count(self) -> None:
        pass


class KeepsTheReady(OneBucketAGroup):
    @override
    def reset_ready(self) -> None:
        pass


class SendsOneEarly(OneBucketAGroup):
    @override
    def complete(self, key: Any, some: list[Any], each: Any) -> None:
        self.count[each] += self.count[each] == 0 < self.need - 1
        super().complete(key, some, each)


class WaitsForNothing(KeepsItsCount):
    """A mistake of each step, the first one included, beside a state that is left over."""

    @override
    def wait(self) -> None:
        for key, locals_, _ in self.sent:
            parts = self.flat[key].split([each.numel() for each in locals_])
            for each, part in zip(locals_, parts, strict=True):
                each.copy_(part.view_as(each))
        self.reset()


def found(subject: type[Any], num_examples: int = 60) -> set[Identity]:
    """Search, and shrink nothing; return the identities that count."""
    resolved, met = resolve(subject), Occurrences()

    def take(_: Scenario, judged: JudgedRun) -> None:
        met.add(judged.violations)

    drawing = Drawing(resolved.capabilities, 4, num_examples, 1)
    judge = Judge(resolved, SimBackend(), ScheduleChoice(), 0)
    judge_each_scenario(drawing, judge, take)
    return {*met.told()}


def test_the_class_is_right() -> None:
    assert found(OneBucketAGroup) == set()


@pytest.mark.parametrize(
    ("subject", "identity"),
    [
        (KeepsItsCount, EARLY),
        pytest.param(KeepsTheReady, RAISED, marks=pytest.mark.nightly),
        pytest.param(SendsOneEarly, EARLY, marks=pytest.mark.nightly),
    ],
)
def test_one_mistake_is_one_violation(subject: type[Any], identity: Identity) -> None:
    assert found(subject) == {identity}


@pytest.mark.nightly
def test_a_mistake_of_every_step_is_another_one() -> None:
    assert found(WaitsForNothing) == {EARLY, IN_FLIGHT}
