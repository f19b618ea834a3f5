"""How the sum of a bucket travels: the collectives of one reduction, start to end."""

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist

from .config import SynchronizerConfig
from .grouping import BucketPlan
from .hook_transport import HookTransport
from .per_axis import AxisByAxis, goes_axis_by_axis
from .process_groups import ReductionGroups

# Its name up to torch 2.12 is deprecated in 2.13.
_reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


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


def choose_transport(
    plan: BucketPlan,
    groups: ReductionGroups,
    config: SynchronizerConfig,
    *,
    is_last: bool,
) -> Transport | None:
    """Choose how to reduce a bucket.

    Args:
        plan: Of the bucket.
        groups: Where to find its process groups.
        config: Whether a comm hook reduces.
        is_last: Whether the bucket is the last to be launched in a step.

    Returns:
        None where there is nothing to communicate.
    """
    scope = plan.scope
    if scope is None:
        return None
    if config.comm_hook is not None:
        return HookTransport(config.comm_hook, plan, groups.get(scope), is_last)
    if plan.num_shards > 1:
        return ReduceScatter(groups.get(scope))
    if scope.mesh is not None and goes_axis_by_axis(plan, config):
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
class ReduceScatter:
    """One reduce-scatter, in place: the part that a rank owns holds the sum afterwards.

    What the other parts hold is left to the process group.

    Attributes:
        group: All the ranks of the bucket.
    """

    group: dist.ProcessGroup

    def start(self, buffer: torch.Tensor) -> Pending:
        """Start to sum the buffer into the part that this rank owns.

        Args:
            buffer: Shape (N,), in as many equal parts as the group has ranks.

        Returns:
            The reduce-scatter in flight.

        Source:
            NCCL documents a reduce-scatter as in place where the output is the rank's
            own part of the input. Gloo copies its input first.
        """
        owned = buffer.chunk(self.group.size())[self.group.rank()]
        work = _reduce_scatter(owned, buffer, group=self.group, async_op=True)
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
