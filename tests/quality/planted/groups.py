"""Groups that their members alone make: real ranks meet under one name, and hang or mix sums."""

import torch
import torch.distributed as dist

from studies.redteam.wrong.meshes import OwnGroups
from syncverify.bugbank.bases.placements import local, reduce_groups
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.specs import MeshSpec
from tests.quality.planted.planted import MATCH, plant, planted, right, training

GRID = training(
    shape=(3,),
    mesh=MeshSpec((2, 2), ("dp", "tp")),
    parameter={"placements": ("R", "S0")},
)


@planted((MATCH,), scenarios=(GRID,))
class MakesGroupsWhereNeeded(PlainGrads):
    """Each rank makes a group as it first needs it, so that members alone do."""

    capabilities = Capabilities(varying_accumulations=True)
    meets_members_alone = False

    def bind(self) -> None:
        self.own: dict[tuple[int, ...], dist.ProcessGroup] = {}

    def reduce(self, gradient: torch.Tensor) -> None:
        for group in reduce_groups(gradient):  # type: ignore[arg-type]  # reads placements
            ranks = tuple(dist.get_process_group_ranks(group))
            if ranks not in self.own:
                self.own[ranks] = dist.new_group(
                    [*ranks], use_local_synchronization=self.meets_members_alone
                )
            dist.all_reduce(local(gradient), group=self.own[ranks])

    def unbind(self) -> None:
        super().unbind()
        self.own.clear()


@right(GRID)
class MeetsMembersAlone(MakesGroupsWhereNeeded):
    """Says so to torch, which gives such a group another name."""

    meets_members_alone = True


OTHERS = [plant(OwnGroups, None, scenarios=(GRID,))]
