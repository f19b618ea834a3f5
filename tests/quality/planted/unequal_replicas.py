"""Synchronizers that need equal replicas, and twins that make them equal or do without."""

from dataclasses import replace

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Replicate

from syncverify.scenario.contract import Capabilities
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from tests.quality.planted.planted import (
    MATCH,
    UNBIND,
    VALUE,
    built_in,
    planted,
    right,
    training,
)

EQUAL = training(2, shape=(3,), accumulations=(2, 1), cap_bytes=24)
UNEQUAL = replace(EQUAL, replicas="unequal")
AFTER_AN_EMPTY_STEP = replace(UNEQUAL, events=("empty_step", "plain"))
SHOWN = {"scenarios": (UNEQUAL,), "elsewhere": (EQUAL,)}


class BroadcastsOneParameter(PlainGrads):
    """Makes the replicas of one parameter equal, and forgets the others."""

    def bind(self) -> None:
        for parameter in self.parameters:
            if isinstance(parameter, DTensor) and Replicate() in parameter.placements:
                _broadcast(parameter)
                break


def _broadcast(parameter: DTensor) -> None:
    for axis, placement in enumerate(parameter.placements):
        if placement.is_replicate():
            group = parameter.device_mesh.get_group(axis)
            value = parameter.to_local().detach()
            dist.broadcast(value, group=group, group_src=0)


@right(UNEQUAL)
class LeavesReplicas(PlainGrads):
    """Correct: reduces gradients for all values of the parameters."""

    capabilities = Capabilities(
        tensors="local",
        varying_accumulations=True,
        features=frozenset({"replicas", "use"}),
    )

    def reduce(self, gradient: torch.Tensor) -> None:
        dist.all_reduce(gradient.detach())


@right(UNEQUAL)
class MakesReplicasEqual(LeavesReplicas):
    """Correct: broadcasts each parameter."""

    def bind(self) -> None:
        for parameter in self.broadcast():
            dist.broadcast(parameter.detach(), 0)

    def broadcast(self) -> list[nn.Parameter]:
        """List the parameters that are made equal."""
        return self.parameters


@planted(
    (UNBIND, "replicas_left_unequal"),
    **SHOWN,
    is_alone=True,
    says=("replicas were made equal, and those of 'p1' are unequal on ranks 0, 1",),
)
class MakesFirstEqual(MakesReplicasEqual):
    """Broadcasts one parameter alone."""

    def broadcast(self) -> list[nn.Parameter]:
        return self.parameters[:1]


@right(UNEQUAL)
class SumsUpdated(MakesReplicasEqual):
    """Correct: sums updated parameters, and subtracts the parameter once for each rank."""

    def wait(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None:
                value = parameter.detach()
                updated = value + parameter.grad
                dist.all_reduce(updated)
                parameter.grad = updated - dist.get_world_size() * value


@planted((VALUE, "unexplained"), **SHOWN)
class TakesReplicasForEqual(SumsUpdated):
    """Sums updated parameters that were never made equal."""

    def broadcast(self) -> list[nn.Parameter]:
        return []


@planted((MATCH, "bucket_mismatch"), **SHOWN)
class OrdersByValue(LeavesReplicas):
    """Reduces the parameter of the largest sum first, which ranks compute on their own."""

    def bind(self) -> None:
        self.parameters.sort(key=lambda parameter: parameter.detach().sum().item())


@planted((UNBIND, "parameter_changed"), scenarios=(UNEQUAL,))
class MakesReplicasEqualLate(LeavesReplicas):
    """Broadcasts parameters as gradients are cleared, when an optimizer has updated them."""

    def zero_grad(self) -> None:
        super().zero_grad()
        for parameter in self.parameters:
            dist.broadcast(parameter.detach(), 0)


OTHERS = [
    *built_in(
        *("synchronizer", "fsdp2", "hsdp", "replicate-fsdp"), scenarios=(UNEQUAL,)
    ),
    # They make replicas equal in the first forward.
    *built_in("ddp", "replicate", scenarios=(UNEQUAL, AFTER_AN_EMPTY_STEP)),
]
