"""The cuts between buckets.

Note [Small at both ends]
~~~~~~~~~~~~~~~~~~~~~~~~~
Large buckets use a network best. But at both ends of a backward a large bucket costs
time.

    * The first bucket cannot start before all of it is complete. A small one starts the
      network early. torch's DistributedDataParallel caps its first bucket at 1 MiB for
      this reason (`_DEFAULT_FIRST_BUCKET_BYTES`).
    * No computation hides the bucket that the last gradient completes: a step lasts
      until that gradient, and then as long as this bucket takes. So the last bucket is
      cut once more, and only a small tail is exposed.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate

FIRST_BUCKET_CAP_BYTES = 2**20
TAIL_CAP_BYTES = 2**20


def cut(sizes_bytes: Sequence[int], cap_bytes: float) -> list[int]:
    """Return the number of gradients in each bucket, in order of readiness.

    Pure arithmetic, see Note [Small at both ends]: ranks with equal gradients cut equal
    buckets. A bucket has at least one gradient. A gradient above `cap_bytes` has a
    bucket for itself; so has a first gradient above `FIRST_BUCKET_CAP_BYTES`.
    """
    counts = list(_fill(sizes_bytes, cap_bytes))
    if counts:
        last = sizes_bytes[len(sizes_bytes) - counts[-1] :]
        num_tail = _tail(last)
        if num_tail < len(last):
            counts[-1:] = [len(last) - num_tail, num_tail]
    return counts


def _fill(sizes_bytes: Sequence[int], cap_bytes: float) -> Iterator[int]:
    """Yield the number of gradients in each bucket; the first bucket is small."""
    bound = min(cap_bytes, FIRST_BUCKET_CAP_BYTES)
    count = filled_bytes = 0
    for size_bytes in sizes_bytes:
        if count and filled_bytes + size_bytes > bound:
            yield count
            bound = cap_bytes
            count = filled_bytes = 0
        count += 1
        filled_bytes += size_bytes
    if count:
        yield count


def _tail(sizes_bytes: Sequence[int]) -> int:
    """Count the gradients of the last bucket that form its tail, at least one."""
    ends = list(accumulate(reversed(sizes_bytes)))
    num_least = ends.count(0) + 1
    num_small = sum(end <= TAIL_CAP_BYTES for end in ends)
    return min(max(num_least, num_small), len(ends))
