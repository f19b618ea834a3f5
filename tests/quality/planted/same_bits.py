"""Sums that round: replicas are the same bits, and micro-batches are not added in the dtype of the wire."""

from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from syncverify.playing.program.modules.layers import module_parameters
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.bugbank.bases.placements import (
    local,
    local_grad,
    reduce_groups,
)
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from tests.quality.planted.planted import (
    AGREE,
    UNBIND,
    VALUE,
    built_in,
    planted,
    right,
    training,
)
from tests.quality.planted.watching import HearsGradients

DIFFER = (AGREE, "replicas_differ")
WIRE = Capabilities(varying_accumulations=True, wire_dtype="bfloat16")
ONE = training(shape=(7,), accumulations=(2,), cap_bytes=64)
UNEQUAL = replace(ONE, replicas="unequal")
ORDINARY = ParameterSpec("b", (3,), None)
BESIDE_AN_ORDINARY_ONE = replace(ONE, parameters=(*ONE.parameters, ORDINARY))
MESH = MeshSpec((4,), ("dp",))
MODULE = Scenario(MESH, module_parameters("mlp", MESH), (2,), 64, module="mlp")
ON_FOUR_RANKS = training(shape=(8, 3), ranks=4, accumulations=(2,), cap_bytes=64)


@right(ONE, BESIDE_AN_ORDINARY_ONE)
class GathersParts(PlainGrads):
    """Sums a part of each gradient on a rank, casts it, and gathers the parts of all ranks."""

    capabilities = WIRE
    sent_dtype = torch.bfloat16
    # What a rank has in the place of its own part that it sent.
    keeps: Any = None

    def wait(self) -> None:
        for parameter in self.parameters:
            for group in reduce_groups(parameter):
                if parameter.grad is not None:
                    self.reduce_in_parts(local(parameter.grad), group)

    def reduce_in_parts(self, gradient: torch.Tensor, group: dist.ProcessGroup) -> None:
        flat, count = gradient.reshape(-1), group.size()
        sent = torch.cat([flat, flat.new_zeros(-flat.numel() % count)])
        part = sent.new_empty(sent.numel() // count)
        dist.reduce_scatter_single(part, sent, group=group)
        narrow = part.to(self.sent_dtype)
        received = narrow.new_empty(sent.numel())
        dist.all_gather_single(received, narrow, group=group)
        whole = received.to(gradient.dtype)
        if self.keeps is not None:
            whole.view(count, -1)[group.rank()] = self.keeps(part)
        gradient.copy_(whole[: flat.numel()].view_as(gradient))


@planted(DIFFER, scenarios=(ONE,), is_alone=True)
class KeepsOwnPart(GathersParts):
    """The rank that summed a part keeps the sum from before the cast."""

    keeps = staticmethod(torch.Tensor.clone)


@planted(DIFFER, scenarios=(MODULE,), is_alone=True)
class KeepsNextNumber(GathersParts):
    """Sends a number, and keeps the next larger one."""

    capabilities = Capabilities(varying_accumulations=True)
    sent_dtype = torch.float32
    keeps = staticmethod(
        lambda part: torch.nextafter(part, part.new_full((), torch.inf))
    )


@right(UNEQUAL)
class BroadcastsNarrow(PlainGrads):
    """Makes replicas equal in `bind()` by a broadcast in bfloat16."""

    capabilities = Capabilities(
        varying_accumulations=True, features=frozenset({"replicas"})
    )
    sender_keeps = False

    def bind(self) -> None:
        for parameter in self.parameters:
            for group in reduce_groups(parameter):
                sent = local(parameter).to(torch.bfloat16)
                dist.broadcast(sent, group=group, group_src=0)
                if group.rank() or not self.sender_keeps:
                    local(parameter).copy_(sent)


@planted((UNBIND, "replicas_left_unequal"), scenarios=(UNEQUAL,), is_alone=True)
class BroadcastsNarrowAndKeeps(BroadcastsNarrow):
    """The sender keeps its value from before the cast."""

    sender_keeps = True


OTHERS = built_in(
    "hsdp:reduce_dtype=bfloat16",
    "fsdp2:reduce_dtype=bfloat16",
    scenarios=(ON_FOUR_RANKS,),
)


# Terms that cancel out show sums over micro-batches in the dtype of the wire.


CANCELLING = training(
    shape=(2, 3),
    ranks=4,
    accumulations=(3,),
    cap_bytes=64,
    parameter={"gradient": "cancelling"},
)
ROUNDED = (VALUE, "rounded")


@right(CANCELLING)
class SendsNarrow(PlainGrads):
    """Adds up micro-batches in the dtype of the gradient, and ranks in bfloat16."""

    capabilities = Capabilities(varying_accumulations=True, wire_dtype="bfloat16")

    def reduce(self, gradient: torch.Tensor) -> None:
        sent = gradient.to(torch.bfloat16)
        super().reduce(sent)
        local(gradient).copy_(local(sent))


@planted(ROUNDED, scenarios=(CANCELLING,))
class HoldsSumsNarrow(HearsGradients, SendsNarrow):
    """Holds the sum of the micro-batches in bfloat16."""

    def bind(self) -> None:
        self.held: dict[nn.Parameter, torch.Tensor] = {}
        self.before: dict[nn.Parameter, torch.Tensor] = {}
        super().bind()

    def accumulated(self, parameter: nn.Parameter) -> None:
        now = local_grad(parameter).clone()
        added = (now - self.before.get(parameter, 0)).to(torch.bfloat16)
        self.held[parameter] = self.held.get(parameter, 0) + added
        self.before[parameter] = now

    def wait(self) -> None:
        for parameter, held in self.held.items():
            local_grad(parameter).copy_(held)
        super().wait()

    def zero_grad(self) -> None:
        super().zero_grad()
        self.held, self.before = {}, {}
