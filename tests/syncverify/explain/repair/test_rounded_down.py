"""A division that leaves out the last part is the place of what is not reduced, and is rounded up."""

import math
from typing import ClassVar

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

import syncverify
from syncverify.explain.case import Case
from syncverify.explain.repair.left_out import left_out
from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.subject import resolve

pytestmark = pytest.mark.slow


def scenario(*sizes: int) -> Scenario:
    """Return a step on two ranks of replicated parameters of these sizes."""
    listed = tuple(
        ParameterSpec(f"p{n}", (size,), ("R",)) for n, size in enumerate(sizes)
    )
    return Scenario(MeshSpec((2,), ("dp",)), listed, (1,), 1 << 20)


class InPairs(PlainGrads):
    """Reduces two parameters at a time."""

    capabilities: ClassVar = Capabilities()

    def num_pairs(self) -> int:
        return len(self.parameters) // 2

    def wait(self) -> None:
        for number in range(self.num_pairs()):
            for parameter in self.parameters[2 * number : 2 * number + 2]:
                if parameter.grad is not None:
                    self.reduce(parameter.grad)


class InAllPairs(InPairs):
    """Is right: the number is rounded up."""

    def num_pairs(self) -> int:
        return math.ceil(len(self.parameters) / 2)


class InShards(PlainGrads):
    """Reduces as many shards of each gradient as there are ranks."""

    capabilities: ClassVar = Capabilities()

    def length(self, numel: int, num_shards: int) -> int:
        return numel // num_shards

    def reduce(self, gradient: torch.Tensor) -> None:
        assert isinstance(gradient, DTensor)
        flat = gradient.to_local().detach().view(-1)
        for axis, placement in enumerate(gradient.placements):
            group = gradient.device_mesh.get_group(axis)
            if placement.is_replicate():
                length = self.length(flat.numel(), group.size())
                for number in range(group.size()):
                    part = flat[number * length : (number + 1) * length]
                    dist.all_reduce(part, group=group)


def first(subject: type, *sizes: int) -> FoundViolation:
    return next(iter(syncverify.play(scenario(*sizes), subject).violations))


def places(subject: type, *sizes: int) -> list[str]:
    found = first(subject, *sizes)
    lines = left_out(Case(found, resolve(subject), SimBackend()))
    return [str(each).partition(" in ")[2] for each in lines]


@pytest.mark.parametrize(
    ("subject", "sizes", "place"),
    [
        (
            InPairs,
            (2, 3, 4),
            (
                "num_pairs: return len(self.parameters) // 2 "
                "(it rounds 3 / 2 down, and leaves out 1)"
            ),
        ),
        (
            InShards,
            (5,),
            "length: return numel // num_shards (it rounds 5 / 2 down, and leaves out 1)",
        ),
    ],
)
def test_the_division_that_leaves_out_the_rest_is_shown(
    subject: type, sizes: tuple[int, ...], place: str
) -> None:
    assert places(subject, *sizes) == [place]


def test_numbers_that_are_rounded_up_are_right() -> None:
    assert syncverify.play(scenario(2, 3, 5), InAllPairs).is_right
