"""The collectives of one bucket, from the launch to the end."""

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist

from syncverify.synchronizer.contract.config import SynchronizerConfig
from syncverify.synchronizer.plan.grouping import BucketPlan
from syncverify.synchronizer.ranks.process_groups import ReductionGroups
from syncverify.synchronizer.transport.comm_hook_transport import (
    HookTransport,
    padding_of,
)

# Its name up to torch 2.12 is deprecated in 2.13.
_reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


class PendingReduction(Protocol):
    """A reduction in flight."""

    def finish(self) -> None:
        """Order the current stream after the reduction; on CPU wait for it."""


class Transport(Protocol):
    """A way to reduce one bucket; made by `bind()`, used once in every step."""

    def start(self, buffer: torch.Tensor) -> PendingReduction:
        """Start to reduce a flat buffer in place, after the work of the current stream.

        No other code may use the buffer, of shape (N,), until `finish`.
        """


def choose_transport(
    plan: BucketPlan,
    groups: ReductionGroups,
    config: SynchronizerConfig,
    *,
    is_last: bool,
) -> Transport | None:
    """Return the transport of a bucket; None where there is nothing to communicate."""
    scope = plan.scope
    if scope is None:
        return None
    if config.comm_hook is not None:
        return HookTransport(
            config.comm_hook, plan, groups.get(scope), is_last, padding_of(plan)
        )
    if plan.num_shards > 1:
        return ReduceScatter(groups.get(scope))
    return AllReduce(groups.get(scope))


@dataclass(frozen=True, slots=True)
class AllReduce:
    """One all-reduce over all ranks of a bucket, which are those of `group`."""

    group: dist.ProcessGroup

    def start(self, buffer: torch.Tensor) -> PendingReduction:
        """Start to sum the buffer in place."""
        work = dist.all_reduce(buffer, group=self.group, async_op=True)
        assert work is not None, "this rank is a member of the group it reduces over"
        return PendingWork(work)


@dataclass(frozen=True, slots=True)
class ReduceScatter:
    """One reduce-scatter in place: afterwards the owned part of a rank holds the sum.

    The content of the other parts is undefined.
    """

    group: dist.ProcessGroup

    def start(self, buffer: torch.Tensor) -> PendingReduction:
        """Return the sum in flight, into the part that this rank owns.

        The buffer has as many equal parts as the group has ranks.

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
    """A collective in flight, and its handle of the process group."""

    work: dist.Work

    def finish(self) -> None:
        """Order the current stream after the collective; on CPU wait for it."""
        self.work.wait()
