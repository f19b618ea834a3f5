"""Defects that let ranks launch in different orders."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from typing_extensions import override

from studies.redteam.program import wrong
from studies.redteam.second.bases import Main, Plain, Views
from syncverify.bugbank.bases.placements import (
    grad_dtype,
    like,
    local_grad,
    reduce_groups,
)
from syncverify.scenario.contract import Capabilities


@wrong(
    "another number of backwards on a rank",
    trigger="odd ranks run a backward less, and 2 groups of parameters: they launch in the plan's order, the others in order of readiness",
)
class RestInOrderOfPlan(Views):
    """A bucket is launched by its last gradient; `wait()` launches those that did not become ready."""

    capabilities = Capabilities(
        right=frozenset({"event=missing_backward", "event=tail"})
    )

    @override
    def bind(self) -> None:
        super().bind()
        self.launched: set[Any] = set()

    @override
    def launch(self, bucket: Any) -> None:
        self.launched.add(bucket)
        super().launch(bucket)

    @override
    def wait(self) -> None:
        # WRONG: ranks with all of their gradients have launched in the order of backward already.
        for bucket in self.buckets:
            if bucket not in self.launched:
                self.launch(bucket)
        super().wait()

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.launched.clear()


@wrong(
    "hashes that order launches",
    trigger="real processes with hash seeds of their own, and 2 parameters: ranks reduce in different orders",
)
class SortsByHash(Plain):
    """Gradients are reduced in the order of the hash of a description, which spreads large ones."""

    @override
    def wait(self) -> None:
        def key(item: tuple[int, nn.Parameter]) -> Any:
            index, parameter = item
            # WRONG: hashes of text differ between processes unless PYTHONHASHSEED is set.
            return hash(f"{index}:{tuple(parameter.shape)}:{parameter.dtype}")

        for _, parameter in sorted(enumerate(self.parameters), key=key):
            for group in reduce_groups(parameter):
                self.sum_over(local_grad(parameter).detach(), group)


@wrong(
    "hashes that order launches",
    trigger="2 ranks, 2 or more parameters that need a collective: sets of tensors are ordered by address",
)
class PendingInASet(Main):
    """Parameters with a gradient wait in a set, and `wait()` reduces them."""

    @override
    def bind(self) -> None:
        super().bind()
        self.pending: set[Any] = set()

    @override
    def move(self, parameter: nn.Parameter) -> None:
        super().move(parameter)
        self.pending.add(parameter)

    @override
    def wait(self) -> None:
        # WRONG: a set of parameters is in the order of their addresses, which differ between ranks.
        for parameter in self.pending:
            flat = self.slots[parameter].reshape(-1)
            for group in reduce_groups(parameter):
                dist.all_reduce(flat, group=group)
            parameter.grad = like(parameter, self.slots[parameter])

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.pending.clear()


@wrong(
    "dtype order",
    trigger="2 dtypes, and ranks whose backwards begin with another parameter: dtypes are reduced in different orders",
)
class DtypesAsTheyCome(Main):
    """One flat buffer for each dtype, made when the first gradient of that dtype comes."""

    capabilities = Capabilities(right=frozenset({"readiness=by_rank"}))

    @override
    def bind(self) -> None:
        super().bind()
        self.arrived: dict[Any, Any] = {}

    @override
    def move(self, parameter: nn.Parameter) -> None:
        self.arrived.setdefault((grad_dtype(parameter), reduce_groups(parameter)), None)
        super().move(parameter)

    @override
    def wait(self) -> None:
        for kind in self.arrived:  # WRONG: in the order of this rank's first backward
            members = [
                p for p in self.parameters if (grad_dtype(p), reduce_groups(p)) == kind
            ]
            flat = torch.cat([self.slots[p].reshape(-1) for p in members])
            self.reduce(flat, kind[1])
            for p, part in zip(
                members,
                flat.split([self.slots[p].numel() for p in members]),
                strict=True,
            ):
                self.slots[p].copy_(part.view(self.slots[p].shape))
        for p in self.parameters:
            p.grad = like(p, self.slots[p])
