"""Defects about the order of launches, groups, polls and errors of collectives."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from typing_extensions import override

from studies.redteam.bases import Main, Plain, Views
from studies.redteam.program import wrong
from syncverify.scenario.contract import Capabilities
from syncverify.subjects.bugbank.bases.placements import grad_dtype, like, reduce_groups


@wrong(
    trigger="odd ranks run a backward less, and 2 groups of parameters: they launch in the plan's order, the others in order of readiness"
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
    trigger="real processes with hash seeds of their own, and 2 parameters: ranks reduce in different orders"
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
            self.sum_up(parameter)


@wrong(
    trigger="2 ranks, 2 or more parameters that need a collective: sets of tensors are ordered by address"
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
    trigger="2 dtypes, and ranks whose backwards begin with another parameter: dtypes are reduced in different orders"
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
            self.sum_bucket(flat, kind[1])
            for p, part in zip(
                members,
                flat.split([self.slots[p].numel() for p in members]),
                strict=True,
            ):
                self.slots[p].copy_(part.view(self.slots[p].shape))
        for p in self.parameters:
            p.grad = like(p, self.slots[p])


@wrong(
    trigger="4 ranks on a mesh of 2 axes: the ranks make other groups first, and wait for each other"
)
class LazyGroupsOfMembers(Plain):
    """Own process groups are made when a group of the mesh is first used, by its members alone."""

    @override
    def bind(self) -> None:
        self.own: dict[Any, Any] = {}

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        if group not in self.own:
            ranks = dist.get_process_group_ranks(group)
            # WRONG: `new_group` is collective over the world unless told otherwise.
            self.own[group] = (
                dist.new_group(ranks) if len(ranks) < dist.get_world_size() else group
            )
        dist.all_reduce(part, group=self.own[group])

    @override
    def unbind(self) -> None:
        super().unbind()
        for mesh_group, group in self.own.items():
            if group is not mesh_group:
                dist.destroy_process_group(group)


@wrong(trigger="2 ranks, a collective that is not done after 64 polls")
class StopsAfterSixtyFourPolls(Views):
    """`wait()` polls, so that the host can be interrupted; a stuck work is given up."""

    MAX_POLLS = 64

    @override
    def finish(self, bucket: Any) -> None:
        work, bucket.work = bucket.work, None
        if work is None:
            return
        polls = 0
        # WRONG: after the last poll the bucket is handed out as it is.
        while not work.is_completed() and polls < self.MAX_POLLS:
            polls += 1
        if polls < self.MAX_POLLS:
            work.wait()
        for group in bucket.groups[1:]:
            dist.all_reduce(bucket.buffer, group=group)


@wrong(
    trigger="2 ranks, a collective that fails asynchronously: the error is lost by `return` in `finally`"
)
class ReturnsInFinally(Views):
    """A bucket is always released, also if its reduction fails."""

    capabilities = Capabilities(refused=frozenset({"event=failing_collectives"}))

    @override
    def finish(self, bucket: Any) -> None:
        work = bucket.work
        try:
            if work is not None:
                work.wait()
                for group in bucket.groups[1:]:
                    dist.all_reduce(bucket.buffer, group=group)
        finally:
            bucket.work = None
            return  # noqa: B012  # WRONG: drops the exception
