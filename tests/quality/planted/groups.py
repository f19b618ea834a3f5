"""Groups that their members alone make, and buckets of several groups: real ranks hang or mix sums."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn

from studies.redteam.wrong.meshes import OwnGroups
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.bugbank.bases.placements import (
    BYTES_PER_MB,
    Groups,
    local,
    local_bytes,
    reduce_groups,
)
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.subjects.bugbank.cross_rank import ChecksInTurn, CutsAtItsOwnCap
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


# Buckets of several groups, and buckets that ranks cut differently.


def with_first(placement: str) -> Scenario:
    """Return a step of a small parameter, replicated or sharded, beside a replicated one."""
    first = ParameterSpec("p0", (1,), (placement,))
    pair = (first, ParameterSpec("p1", (2,), ("R",)))
    return Scenario(MeshSpec((2,), ("dp",)), pair, (1,), BYTES_PER_MB)


UNEVEN = with_first("S0")


@planted(
    (MATCH, "groups_mixed"),
    twin=ViewBuckets,
    scenarios=(UNEVEN,),
    says=("the bucket of p1 holds gradients of other groups",),
)
class MixesGroups(ViewBuckets):
    """Fills buckets without a look at groups; the last parameter's is taken for all."""

    def plan(self) -> Iterator[list[nn.Parameter]]:
        yield [parameter for group in self.param_groups for parameter in group[::-1]]


@right(UNEVEN)
class SumsPartsOfABucket(MixesGroups):
    """One buffer for gradients of two groups, whose parts are summed one by one: right."""

    def groups_of(self, parameter: nn.Parameter) -> Groups:
        return ()  # no group has the whole buffer

    def wait(self) -> None:
        for bucket in self.buckets:
            start = 0
            for parameter in bucket.parameters:
                end = start + local_bytes(parameter) // bucket.buffer.itemsize
                for group in super().groups_of(parameter):
                    dist.all_reduce(bucket.buffer[start:end], group=group)
                start = end


@right(training(2), training(2, cap_bytes=1, ranks=3, accumulations=(2, 1)))
class ChecksAtTheEnd(ChecksInTurn):
    """Right: the check for overflow comes last, on all ranks."""

    def launch(self, bucket: Bucket) -> None:
        ViewBuckets.launch(self, bucket)

    def wait(self) -> None:
        ViewBuckets.wait(self)
        self.check()
        self.checks.pop().wait()


OTHERS = [
    plant(OwnGroups, None, scenarios=(GRID,)),
    plant(
        CutsAtItsOwnCap,
        (MATCH, "buckets_differ"),
        twin=ViewBuckets,
        scenarios=(with_first("R"),),
        says=("p0 is in one bucket with p1 on rank 0, and not on rank 1",),
    ),
]
