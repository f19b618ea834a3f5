"""The choice of small buckets that are summed over one mesh axis after the other.

Note [Axis by axis]
~~~~~~~~~~~~~~~~~~~
A bucket whose ranks span several mesh axes can be summed in two ways:

    * by one all-reduce over all axes. It moves fewer bytes. But it needs a process
      group that the mesh does not have, and the cost of a tiny all-reduce grows with
      the number of its ranks;
    * by one all-reduce for each axis, one after the other.

Measured with gloo on a 2 x 2 mesh (4 processes on 2 busy cores, ratios of medians in
four runs), time of axis by axis, divided by time of one all-reduce:

    bytes    up to 64 KiB                256 KiB        1 MiB           4 MiB
    ratio    0.3 to 1.3, mostly 0.8      0.75 to 1.1    0.96 to 1.03    1.3 to 1.75

Backward hides only the first axis, so an equal time is a loss: hence
`AXIS_BY_AXIS_BYTES`. The rule holds on CPU only. Other devices were not measured.
Besides, groups of one axis may choose algorithms that round differently; gloo does not,
others may.

*Launches.* The first axis is launched from within backward, like any bucket. The next
axis needs the result of the first one. A wait for that on CPU would block the hook, and
with it all of backward. So `wait()` launches the later axes, bucket by bucket in launch
order.

*No deadlock.* Every rank launches the first axes of all buckets, in launch order,
before any later axis, and then the later axes by bucket and axis. The ranks of a bucket
agree on its place and on its axes. So there is again one strict order over all
collectives, as in Note [One launch order]: the first collective that is not complete
has been launched by all of its ranks, or they launch it without a wait for another one.
A step that is given up launches no further axis, because its ranks may be at different
places.
"""

from syncverify.synchronizer.contract.config import SynchronizerConfig

from .grouping import BucketPlan

AXIS_BY_AXIS_BYTES = 2**16


def goes_axis_by_axis(plan: BucketPlan, config: SynchronizerConfig) -> bool:
    """Return whether a bucket is small, and summed over several axes of one mesh.

    The answer is equal on all ranks of the bucket. A scattered sum needs one group; so
    does a comm hook.
    """
    scope, key = plan.scope, plan.key
    if plan.num_shards > 1 or config.comm_hook is not None:
        return False
    if scope is None or scope.mesh is None or key.device.type != "cpu":
        return False
    buffer_bytes = plan.buffer_numel * key.wire.dtype.itemsize
    return len(scope.axes) > 1 and buffer_bytes <= AXIS_BY_AXIS_BYTES
