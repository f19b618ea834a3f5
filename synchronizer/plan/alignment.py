"""The places of gradients in a buffer: aligned for vectorized kernels, and for links."""

from collections.abc import Sequence

ALIGNMENT_BYTES = 128
_VECTOR_BYTES = 16


def aligned_starts(numels: Sequence[int], itemsize: int) -> list[int]:
    """Start every gradient at a multiple of 128 bytes; a small one, of its own size.

    The size is rounded up to a power of two, and at least the 16 bytes of a vector. A model
    may have thousands of scalars, which 128 bytes each would pad 31-fold.

    Args:
        numels: Number of elements of each gradient.
        itemsize: Bytes of an element.

    Returns:
        The start of each gradient and the aligned end of all, in elements.
    """
    starts, end = list[int](), 0
    for numel in numels:
        power = 1 << (numel * itemsize - 1).bit_length() if numel else 1
        boundary_bytes = min(max(power, _VECTOR_BYTES), ALIGNMENT_BYTES)
        starts.append(_rounded_up(end, boundary_bytes // itemsize))
        end = starts[-1] + numel
    return [*starts, aligned_end(end, itemsize)]


def aligned_end(numel: int, itemsize: int, num_shards: int = 1) -> int:
    """Round a number of elements up to a multiple of 128 bytes, for each of equal parts."""
    return _rounded_up(numel, ALIGNMENT_BYTES // itemsize * num_shards)


def _rounded_up(numel: int, multiple: int) -> int:
    return -(-numel // multiple) * multiple
