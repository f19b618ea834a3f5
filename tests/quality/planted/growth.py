"""Synchronizers with right gradients that keep more and more, where it is easily overlooked."""

import functools
from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override

from studies.redteam.wrong.leftovers import MakesAGroupEachStep, RemembersEachStep
from syncverify.bugbank.bases.view_buckets import ViewBuckets
from syncverify.scenario.contract import Capabilities


def noted(gradients: torch.Tensor, notes: list[Any] = []) -> None:  # noqa: B006  # the defect
    notes.append(gradients.clone())


def counted(gradients: torch.Tensor) -> None:
    counted.seen = [*getattr(counted, "seen", ()), gradients.clone()]  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=3)
def copy_of_late(gradients: torch.Tensor, step: int) -> torch.Tensor:
    return gradients + step


class CountsSteps(ViewBuckets):
    """Hands the first bucket's gradients of each step to `use()`."""

    capabilities = Capabilities(varying_accumulations=True)

    @override
    def bind(self) -> None:
        super().bind()
        self.step = 0

    @override
    def wait(self) -> None:
        super().wait()
        self.step += 1
        self.use(self.buckets[0].buffer)

    def use(self, gradients: torch.Tensor) -> None:
        raise NotImplementedError


class KeepsInADefault(CountsSteps):
    """The default value of an argument is a list that becomes longer."""

    @override
    def use(self, gradients: torch.Tensor) -> None:
        noted(gradients)


class KeepsOnAFunction(CountsSteps):
    """An attribute of a function becomes longer."""

    @override
    def use(self, gradients: torch.Tensor) -> None:
        counted(gradients)


class KeepsAFewInACache(CountsSteps):
    """Right: a cache of three results."""

    @override
    def use(self, gradients: torch.Tensor) -> None:
        copy_of_late(gradients, self.step)


class MakesGroupsForAStep(CountsSteps):
    """Right, though slow: the group of a step is destroyed at its end."""

    @override
    def use(self, gradients: torch.Tensor) -> None:
        dist.destroy_process_group(dist.new_group([*range(dist.get_world_size())]))


GROWING: list[type[Any]] = [
    RemembersEachStep,
    KeepsInADefault,
    KeepsOnAFunction,
    MakesAGroupEachStep,
]
RIGHT: list[type[ViewBuckets]] = [KeepsAFewInACache, MakesGroupsForAStep]
