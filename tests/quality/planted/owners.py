"""Synchronizers that reduce each gradient to one rank, its owner; defective ones among them."""

from dataclasses import replace

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from syncverify.playing.program.modules.layers import module_parameters
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec
from syncverify.subjects.bugbank.bases.placements import reduce_groups
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from tests.quality.planted.planted import VALUE, plant, planted, right, training

TWO_STEPS = training(2, shape=(3,), ranks=3, accumulations=(1, 1))
GRID = training(
    2,
    shape=(3,),
    accumulations=(2, 1),
    mesh=MeshSpec((2, 2), ("dp", "tp")),
    parameter={"placements": ("R", "R")},
)
MESH = MeshSpec((2,), ("dp",))
MODULE = Scenario(MESH, module_parameters("mlp", MESH), (1, 1), 64, module="mlp")
ROUNDED = "gradient_is_within_rounding"
MOVED = ("gradient of 'p0' is right on rank 1 in step 1, and not on its owner, rank 0",)


@right(TWO_STEPS, GRID, MODULE)
class ReducesToOwner(PlainGrads):
    """Correct: `dist.reduce` to the n-th rank for the n-th parameter, axis after axis."""

    capabilities = Capabilities(varying_accumulations=True, gradients="owner")
    step = 0

    def wait(self) -> None:
        for index, parameter in enumerate(self.parameters):
            if isinstance(parameter, DTensor) and parameter.grad is not None:
                self.reduce_to(self.seat(index), parameter.grad)

    def zero_grad(self) -> None:
        super().zero_grad()
        self.step += 1

    def seat(self, index: int) -> int:
        """Return a parameter's owner as a number; a group counts it from its first rank."""
        return index

    def index(self, parameter: nn.Parameter) -> int:
        """Return the position of a parameter; `list.index` would compare elements."""
        return next(n for n, p in enumerate(self.parameters) if p is parameter)

    def reduce_to(self, seat: int, gradient: torch.Tensor) -> None:
        local = gradient.to_local().detach()
        for group in reduce_groups(gradient):
            root = seat % group.size()
            self.send(local, group, root)
            if group.rank() != root:
                return

    def send(self, local: torch.Tensor, group: dist.ProcessGroup, root: int) -> None:
        dist.reduce(local, group=group, group_dst=root)


@right(TWO_STEPS, GRID, MODULE)
class NamesOwner(ReducesToOwner):
    """Correct: it tells the owner, and other ranks drop their gradients."""

    def owner(self, parameter: nn.Parameter) -> bool:
        if not parameter.requires_grad or not isinstance(parameter, DTensor):
            return True
        index = self.index(parameter)
        groups = reduce_groups(parameter)
        return all(group.rank() == index % group.size() for group in groups)

    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            if not self.owner(parameter):
                parameter.grad = None


@right(TWO_STEPS, GRID)
class ReducesOneByOneInBackward(NamesOwner):
    """Correct: it starts each reduction in a hook, and the owner alone waits for it."""

    def bind(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        self.works = []
        for parameter in self.parameters:
            hook = parameter.register_post_accumulate_grad_hook(self.note)
            self.handles.append(hook)

    def note(self, parameter: nn.Parameter) -> None:
        self.counts[parameter] += 1
        if self.counts[parameter] == self.required and isinstance(parameter, DTensor):
            self.reduce_to(self.index(parameter), parameter.grad)

    def send(self, local: torch.Tensor, group: dist.ProcessGroup, root: int) -> None:
        work = dist.reduce(local, group=group, group_dst=root, async_op=True)
        if group.rank() == root:
            work.wait()
        else:
            self.works.append(work)

    def wait(self) -> None:
        """Leave the works of other owners to `zero_grad()`."""

    def zero_grad(self) -> None:
        for work in self.works:
            work.wait()
        self.works.clear()
        super().zero_grad()
        self.counts = dict.fromkeys(self.parameters, 0)


@planted((VALUE, "wrong_owner"), scenarios=(TWO_STEPS,), says=MOVED)
class ChangesOwner(ReducesToOwner):
    """Defect: from the second step on, the next rank gets the sum."""

    def seat(self, index: int) -> int:
        return index + min(self.step, 1)


@planted((VALUE, "wrong_owner"), scenarios=(TWO_STEPS,), says=MOVED)
class NamesAnotherOwner(NamesOwner):
    """Defect: from the second step on, the next rank gets the sum; `owner()` does not say so."""

    def wait(self) -> None:
        ReducesToOwner.wait(self)

    def seat(self, index: int) -> int:
        return index + min(self.step, 1)


@planted((VALUE, "rank_contribution_missing"), scenarios=(TWO_STEPS,))
class LosesAContribution(ReducesToOwner):
    """Defect: the last rank of each group sends zeros."""

    def send(self, local: torch.Tensor, group: dist.ProcessGroup, root: int) -> None:
        if group.rank() == group.size() - 1 and group.size() > 1:
            local.zero_()
        super().send(local, group, root)


@planted(
    (VALUE, "no_owner"),
    scenarios=(TWO_STEPS,),
    says=(
        "expected an owner of 'p0' among ranks [0, 1, 2], but owner() is false on each",
    ),
)
class NobodyOwns(NamesOwner):
    """Defect: no rank says that it owns a gradient."""

    def owner(self, parameter: nn.Parameter) -> bool:
        return False


@planted((VALUE,), scenarios=(TWO_STEPS,))
class PromisesAllRanks(ReducesToOwner):
    """Defect: its contract promises the sum on all ranks."""

    capabilities = replace(ReducesToOwner.capabilities, gradients="all ranks")


OTHERS = [
    plant(each, (ROUNDED, "wrong_owner"), scenarios=(MODULE,), is_alone=True)
    for each in (ChangesOwner, NamesAnotherOwner)
]
