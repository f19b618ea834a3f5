"""Groups that their members alone make: real ranks meet under one name, and hang or mix sums."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from typing_extensions import override

from studies.redteam.wrong.groups import OwnGroups
from syncverify.backends.sim import SimBackend
from syncverify.bugbank.bases.placements import local, reduce_groups
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.judge.properties import check
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import resolve


class MakesGroupsWhereNeeded(PlainGrads):
    """Each rank makes a group as it first needs it, so that members alone do."""

    capabilities = Capabilities(varying_accumulations=True)
    meets_members_alone = False

    @override
    def bind(self) -> None:
        self.own: dict[tuple[int, ...], dist.ProcessGroup] = {}

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        for group in reduce_groups(gradient):  # type: ignore[arg-type]  # reads placements
            ranks = tuple(dist.get_process_group_ranks(group))
            if ranks not in self.own:
                self.own[ranks] = dist.new_group(
                    [*ranks], use_local_synchronization=self.meets_members_alone
                )
            dist.all_reduce(local(gradient), group=self.own[ranks])

    @override
    def unbind(self) -> None:
        super().unbind()
        self.own.clear()


class MeetsMembersAlone(MakesGroupsWhereNeeded):
    """Says so to torch, which gives such a group another name."""

    meets_members_alone = True


WEIGHT = ParameterSpec("w", (3,), ("R", "S0"))
SCENARIO = Scenario(MeshSpec((2, 2), ("dp", "tp")), (WEIGHT,), (1,), 64)


def test_groups_that_members_alone_make_are_named() -> None:
    subject = resolve(MakesGroupsWhereNeeded)
    run = SimBackend().run(SCENARIO, subject)
    [found] = check(SCENARIO, run, subject.capabilities)
    assert found.property == "collectives_match_across_ranks"
    assert run.fault is not None
    details = "\n".join(map(str, run.fault.details))
    assert "has the ranks [0, 2], used at" in details
    assert "has the ranks [1, 3], used at" in details


@pytest.mark.parametrize("subject", [MeetsMembersAlone, OwnGroups])
def test_groups_that_all_ranks_make_or_that_say_so_are_right(subject: Any) -> None:
    resolved = resolve(subject)
    run = SimBackend().run(SCENARIO, resolved)
    assert check(SCENARIO, run, resolved.capabilities) == []
