"""Process groups that ranks make without each other."""

from __future__ import annotations

import torch
import torch.distributed as dist
from typing_extensions import override

from studies.redteam.program import wrong
from studies.redteam.wrong.sizes import local_of, reduce_groups_of
from syncverify.bugbank.bases.plain_grads import PlainGrads


class OwnGroups(PlainGrads):
    """Reduces over groups of its own, with the ranks of the mesh's groups."""

    @override
    def bind(self) -> None:
        self.own: dict[tuple[int, ...], dist.ProcessGroup] = {}
        for ranks in self.wanted():
            self.own[ranks] = dist.new_group([*ranks])

    def wanted(self) -> list[tuple[int, ...]]:
        """List the ranks of all groups of the world, in one order on all ranks."""
        mine = {
            tuple(dist.get_process_group_ranks(group))
            for parameter in self.parameters
            for group in reduce_groups_of(parameter)
        }
        listed: list[set[tuple[int, ...]]] = [
            set() for _ in range(dist.get_world_size())
        ]
        dist.all_gather_object(listed, mine)
        return sorted(set.union(*listed))

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        for group in reduce_groups_of(gradient):
            own = self.own[tuple(dist.get_process_group_ranks(group))]
            dist.all_reduce(local_of(gradient), group=own)

    @override
    def unbind(self) -> None:
        super().unbind()
        self.own.clear()


@wrong(trigger="a mesh of 2 axes with 4 ranks: the others wait in `new_group`")
class MakesItsOwnAlone(OwnGroups):
    """Each rank makes the groups alone of which it is a member."""

    @override
    def wanted(self) -> list[tuple[int, ...]]:
        return [ranks for ranks in super().wanted() if dist.get_rank() in ranks]


@wrong(trigger="a mesh of 2 axes with 4 ranks")
class MakesThemInItsOrder(OwnGroups):
    """Each rank makes its own groups first, and those of others later."""

    @override
    def wanted(self) -> list[tuple[int, ...]]:
        rank = dist.get_rank()
        return sorted(super().wanted(), key=lambda ranks: rank not in ranks)
