"""Where one bucket ends and the next begins.

Note [Small at both ends]
~~~~~~~~~~~~~~~~~~~~~~~~~
Large buckets use a network best, but at both ends of a backward size is time. The first
bucket cannot start before all of it is there, so a small one puts the network to work
early; torch's DistributedDataParallel caps its first bucket at 1 MiB for this reason
(`_DEFAULT_FIRST_BUCKET_BYTES`). And nothing hides the bucket that the last gradient
completes: a step lasts at least until that gradient, and then for as long as this bucket
takes. So what is left for the end is cut once more, and only a small tail is exposed.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate

FIRST_BUCKET_CAP_BYTES = 2**20
TAIL_CAP_BYTES = 2**20


def cut(sizes_bytes: Sequence[int], cap_bytes: float) -> list[int]:
    """Cut a row of gradients into buckets, see Note [Small at both ends].

    Pure arithmetic, so ranks with equal gradients cut equal buckets.

    Args:
        sizes_bytes: Of each local gradient, in the order in which they become ready.
        cap_bytes: Upper bound on a bucket. A gradient above it is alone, as is one
            above `FIRST_BUCKET_CAP_BYTES` that comes first.

    Returns:
        How many gradients each bucket holds, in order; at least one.
    """
    counts = list(_fill(sizes_bytes, cap_bytes))
    if counts:
        last = sizes_bytes[len(sizes_bytes) - counts[-1] :]
        num_tail = _tail(last)
        if num_tail < len(last):
            counts[-1:] = [len(last) - num_tail, num_tail]
    return counts


def _fill(sizes_bytes: Sequence[int], cap_bytes: float) -> Iterator[int]:
    """Yield how many gradients fit in each bucket, the first of them small."""
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
    """Count the gradients of a last bucket that make up its tail; one with elements."""
    ends = list(accumulate(reversed(sizes_bytes)))
    num_least = ends.count(0) + 1
    num_small = sum(end <= TAIL_CAP_BYTES for end in ends)
    return min(max(num_least, num_small), len(ends))
