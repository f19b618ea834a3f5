"""How the sum of a bucket travels: the collectives of one reduction, start to end."""

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist

from .grouping import BucketPlan
from .per_axis import AxisByAxis, goes_axis_by_axis
from .process_groups import ReductionGroups


class Pending(Protocol):
    """A reduction that was started."""

    def finish(self) -> None:
        """Order the current stream after it; on CPU block until it is done."""


class Transport(Protocol):
    """A way to reduce one bucket; made by `bind()`, used once in every step."""

    def start(self, buffer: torch.Tensor) -> Pending:
        """Start to reduce a flat buffer in place, after what the current stream holds.

        Args:
            buffer: Shape (N,); nobody may touch it until the reduction is finished.
        """


def choose_transport(plan: BucketPlan, groups: ReductionGroups) -> Transport | None:
    """Choose how to reduce a bucket.

    Args:
        plan: Of the bucket.
        groups: Where to find its process groups.

    Returns:
        None where there is nothing to communicate.
    """
    scope = plan.scope
    if scope is None:
        return None
    if scope.mesh is not None and goes_axis_by_axis(plan):
        return AxisByAxis(tuple(map(scope.mesh.get_group, scope.axes)))
    return AllReduce(groups.get(scope))


@dataclass(frozen=True, slots=True)
class AllReduce:
    """One all-reduce over all the ranks of a bucket.

    Attributes:
        group: Those ranks.
    """

    group: dist.ProcessGroup

    def start(self, buffer: torch.Tensor) -> Pending:
        """Start to sum the buffer in place.

        Args:
            buffer: Shape (N,).

        Returns:
            The all-reduce in flight.
        """
        work = dist.all_reduce(buffer, group=self.group, async_op=True)
        assert work is not None, "this rank is a member of the group it reduces over"
        return PendingWork(work)


@dataclass(frozen=True, slots=True)
class PendingWork:
    """A collective in flight.

    Attributes:
        work: What the process group returned.
    """

    work: dist.Work

    def finish(self) -> None:
        """Order the current stream after the collective; on CPU block until it is done."""
        self.work.wait()
