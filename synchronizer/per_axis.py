"""Small buckets that several mesh axes sum: one all-reduce for each axis, in turn.

Note [Axis by axis]
~~~~~~~~~~~~~~~~~~~
A bucket whose ranks span several mesh axes can be summed by one all-reduce over all of
them, or by one for each axis, after the other. The first moves fewer bytes. But it takes
a process group that the mesh does not have, and what a tiny all-reduce costs grows with
the ranks that meet. With gloo on a 2 x 2 mesh (4 processes on 2 busy cores, ratios of
medians in four runs), axis by axis took 0.3 to 1.3 of the time up to 64 KiB, 0.8 in the
middle; 0.75 to 1.1 at 256 KiB; 0.96 to 1.03 at 1 MiB; and 1.3 to 1.75 at 4 MiB. Later axes
are exposed, so an even race is lost, and `AXIS_BY_AXIS_BYTES` is where we stop. On CPU
only: it was not measured elsewhere, and groups of one axis are free to choose algorithms
that round differently, which gloo does not and others may.

What is launched when: the first axis where any bucket would be launched, from within
backward. The next one needs its result, and to wait for that on CPU would block the
hook, and with it all of backward. So later axes are launched by `wait()`, bucket by
bucket in launch order.

Why nothing deadlocks: every rank launches all first axes before any later one, the first
ones in launch order, and then later ones by bucket and axis. The ranks of a bucket agree
on its place and on its axes, so this is one strict order over all collectives again, as
in Note [One launch order]: whatever is first among those not completed has been launched,
or will be, by all of its ranks without waiting for another. A step that is given up
launches nothing more, since its ranks need not have come equally far.
"""

from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from .config import SynchronizerConfig
from .grouping import BucketPlan

AXIS_BY_AXIS_BYTES = 2**16


def goes_axis_by_axis(plan: BucketPlan, config: SynchronizerConfig) -> bool:
    """Tell whether a bucket is small, and summed over several axes of one mesh.

    Args:
        plan: Of the bucket.
        config: Whether the sum is scattered, or left to a comm hook: both need one group.

    Returns:
        The same on all of its ranks.
    """
    scope, key = plan.scope, plan.key
    if plan.num_shards > 1 or config.comm_hook is not None:
        return False
    if scope is None or scope.mesh is None or key.device.type != "cpu":
        return False
    buffer_bytes = plan.buffer_numel * key.wire.dtype.itemsize
    return len(scope.axes) > 1 and buffer_bytes <= AXIS_BY_AXIS_BYTES


@dataclass(frozen=True, slots=True)
class AxisByAxis:
    """One all-reduce for each mesh axis of a bucket.

    Attributes:
        groups: Of this rank, one for each axis.
    """

    groups: tuple[dist.ProcessGroup, ...]

    def start(self, buffer: torch.Tensor) -> "AxesInFlight":
        """Start to sum the buffer in place over the first axis.

        Args:
            buffer: Shape (N,).

        Returns:
            The sum in flight.
        """
        in_flight = AxesInFlight(buffer, [*reversed(self.groups)])
        in_flight.launch_next()
        return in_flight


@dataclass(slots=True)
class AxesInFlight:
    """A sum of which some axes may be left to launch.

    Attributes:
        buffer: Shape (N,).
        left: Groups of the axes that were not launched, the next one last; empty it
            to give up.
        work: Of the newest axis that was.
    """

    buffer: torch.Tensor
    left: list[dist.ProcessGroup]
    work: dist.Work | None = field(default=None)

    def launch_next(self) -> None:
        """Launch the next axis; the one before is over on the current stream."""
        self.work = dist.all_reduce(self.buffer, group=self.left.pop(), async_op=True)

    def finish(self) -> None:
        """Sum over the axes that are left; order the current stream after all of it."""
        self._wait()
        while self.left:
            self.launch_next()
            self._wait()

    def _wait(self) -> None:
        assert self.work is not None, "this rank is a member of every axis of its mesh"
        self.work.wait()
