"""Synchronizers that need equal replicas, and twins that make them equal or do without."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Replicate
from typing_extensions import override

from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.scenario.contract import Capabilities


class BroadcastsOneParameter(PlainGrads):
    """Makes the replicas of one parameter equal, and forgets the others."""

    @override
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


class LeavesReplicas(PlainGrads):
    """Correct: reduces gradients for all values of the parameters."""

    capabilities = Capabilities(
        tensors="local",
        varying_accumulations=True,
        features=frozenset({"replicas", "use"}),
    )

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        dist.all_reduce(gradient.detach())


class MakesReplicasEqual(LeavesReplicas):
    """Correct: broadcasts each parameter."""

    @override
    def bind(self) -> None:
        for parameter in self.broadcast():
            dist.broadcast(parameter.detach(), 0)

    def broadcast(self) -> list[nn.Parameter]:
        """List the parameters that are made equal."""
        return self.parameters


class MakesFirstEqual(MakesReplicasEqual):
    """Broadcasts one parameter alone."""

    @override
    def broadcast(self) -> list[nn.Parameter]:
        return self.parameters[:1]


class SumsUpdated(MakesReplicasEqual):
    """Correct: sums updated parameters, and subtracts the parameter once for each rank."""

    @override
    def wait(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None:
                value = parameter.detach()
                updated = value + parameter.grad
                dist.all_reduce(updated)
                parameter.grad = updated - dist.get_world_size() * value


class TakesReplicasForEqual(SumsUpdated):
    """Sums updated parameters that were never made equal."""

    @override
    def broadcast(self) -> list[nn.Parameter]:
        return []


class OrdersByValue(LeavesReplicas):
    """Reduces the parameter of the largest sum first, which ranks compute on their own."""

    @override
    def bind(self) -> None:
        self.parameters.sort(key=lambda parameter: parameter.detach().sum().item())


class MakesReplicasEqualLate(LeavesReplicas):
    """Broadcasts parameters as gradients are cleared, when an optimizer has updated them."""

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        for parameter in self.parameters:
            dist.broadcast(parameter.detach(), 0)
