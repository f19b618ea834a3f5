"""Defects about groups, polls and errors of collectives."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override

from studies.redteam.program import wrong
from studies.redteam.second.bases import Plain, Views
from syncverify.scenario.contract import Capabilities


@wrong(
    "new_group",
    trigger="4 ranks on a mesh of 2 axes: the ranks make other groups first, and wait for each other",
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


@wrong(
    "polls that give up",
    trigger="2 ranks, a collective that is not done after 64 polls",
)
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
    "asynchronous errors",
    trigger="2 ranks, a collective that fails asynchronously: the error is lost by `return` in `finally`",
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
