"""A state that a step leaves over is one violation, whatever it breaks in the next step."""

import functools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist

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
    """Sends the gradients of a parameter group together, once all of them are complete.

    A key stands for a bucket: number of the group, dtype, and mesh axes to sum over.
    """

    def __init__(
        self, param_groups: Any, bucket_size_mb: float, require_accumulations: int
    ) -> None:
        del bucket_size_mb
        self.groups = [[*group] for group in param_groups]
        self.required = require_accumulations
        self.counts: dict[Any, int] = {}
        self.ready: dict[Any, set[Any]] = {}
        self.sent: list[tuple[Any, Sequence[Any], dist.Work]] = []
        self.flat: dict[Any, torch.Tensor] = {}
        self.handles: list[Any] = []

    def bind(self) -> None:
        for number, group in enumerate(self.groups):
            buckets: dict[Any, list[Any]] = {}
            for parameter in group:
                axes = self.axes(parameter)
                if parameter.requires_grad and axes:
                    key = (number, parameter.dtype, axes)
                    buckets.setdefault(key, []).append(parameter)
            for key, members in buckets.items():
                self.watch(key, members)

    def axes(self, parameter: Any) -> tuple[int, ...]:
        placements = getattr(parameter, "placements", ())
        return tuple(i for i, each in enumerate(placements) if each.is_replicate())

    def watch(self, key: Any, members: list[Any]) -> None:
        self.ready[key] = set()
        for parameter in members:
            self.counts[parameter] = 0
            hook = functools.partial(self.complete, key, members)
            self.handles.append(parameter.register_post_accumulate_grad_hook(hook))

    def complete(self, key: Any, members: list[Any], parameter: Any) -> None:
        self.counts[parameter] += 1
        if self.counts[parameter] >= self.required:
            self.ready[key].add(parameter)
            if len(self.ready[key]) == len(members):
                self.send(key, members)

    def send(self, key: Any, members: list[Any]) -> None:
        gradients = [parameter.grad.to_local() for parameter in members]
        self.flat[key] = torch.cat([each.reshape(-1) for each in gradients])
        *_, axes = key
        for axis in axes:
            group = members[0].device_mesh.get_group(axis)
            work = dist.all_reduce(self.flat[key], group=group, async_op=True)
            if axis != axes[-1]:
                work.wait()
        self.sent.append((key, gradients, work))

    def wait(self) -> None:
        for key, gradients, work in self.sent:
            work.wait()
            self.hand_back(key, gradients)
        self.reset()

    def hand_back(self, key: Any, gradients: Sequence[Any]) -> None:
        parts = self.flat[key].split([each.numel() for each in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def reset(self) -> None:
        self.sent.clear()
        self.reset_counts()
        self.reset_ready()

    def reset_counts(self) -> None:
        self.counts = dict.fromkeys(self.counts, 0)

    def reset_ready(self) -> None:
        for ready in self.ready.values():
            ready.clear()

    def zero_grad(self) -> None:
        for group in self.groups:
            for parameter in group:
                parameter.grad = None

    def unbind(self) -> None:
        for handle in self.handles:
            handle.remove()


class KeepsItsCounts(OneBucketAGroup):
    """Counts on in the next step."""

    def reset_counts(self) -> None:
        pass


class KeepsTheReady(OneBucketAGroup):
    """Takes the parameters of the step before for ready."""

    def reset_ready(self) -> None:
        pass


class SendsOneEarly(OneBucketAGroup):
    """Counts the first gradient of a step twice, unless it is the only one."""

    def complete(self, key: Any, members: list[Any], parameter: Any) -> None:
        if self.counts[parameter] == 0 and self.required > 1:
            self.counts[parameter] += 1
        super().complete(key, members, parameter)


class WaitsForNothing(KeepsItsCounts):
    """A mistake of each step, the first one included, beside a state that is left over."""

    def wait(self) -> None:
        for key, gradients, _ in self.sent:
            self.hand_back(key, gradients)
        self.reset()


def found(subject: type[Any], num_examples: int = 60) -> set[Identity]:
    """Search, and shrink nothing; return the identities that count."""
    resolved, met = resolve(subject), Occurrences()

    def take(_: Scenario, judged: JudgedRun) -> None:
        met.add(judged.violations)

    drawing = Drawing(resolved.capabilities, 4, num_examples, 1)
    judge = Judge(resolved, SimBackend(), ScheduleChoice(), 0)
    judge_each_scenario(drawing, judge, take)
    return {*met.reported()}


def test_the_class_is_right() -> None:
    assert found(OneBucketAGroup, 30) == set()


@pytest.mark.parametrize(
    ("subject", "identity", "num_examples"),
    [
        (KeepsItsCounts, EARLY, 30),  # 4 of them show its consequence alone
        pytest.param(KeepsTheReady, RAISED, 60, marks=pytest.mark.nightly),
        pytest.param(SendsOneEarly, EARLY, 60, marks=pytest.mark.nightly),
    ],
)
def test_one_mistake_is_one_violation(
    subject: type[Any], identity: Identity, num_examples: int
) -> None:
    assert found(subject, num_examples) == {identity}


@pytest.mark.nightly
def test_a_mistake_of_every_step_is_another_one() -> None:
    assert found(WaitsForNothing) == {EARLY, IN_FLIGHT}
