"""Strategies for bucket caps."""

import functools
import itertools

from hypothesis import strategies as st

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.layout import itemsize, local_bytes, most_group_bytes
from syncverify.scenario.specs import MeshSpec, ParameterSpec

_ONE_BUCKET_CAP_BYTES = 2**20
# The size of one small parameter, and of several, in bytes.
_SPLITTING_CAP_BYTES = (64, 512)


@functools.cache
def bucket_caps() -> st.SearchStrategy[int]:
    """Generate bucket caps in bytes, with and without a split; shrinks toward no split."""
    splitting = [st.integers(1, limit) for limit in _SPLITTING_CAP_BYTES]
    return st.one_of(st.just(_ONE_BUCKET_CAP_BYTES), *splitting)


def bucket_edges(
    mesh: MeshSpec, parameters: tuple[ParameterSpec, ...], *, near_misses: bool
) -> list[int]:
    """List caps in bytes that the first parameters fill to the byte on rank 0.

    With `near_misses`, also caps one element off, and parts of one parameter.
    """
    sizes = [local_bytes(mesh, spec, 0) for spec in parameters]
    exact = [max(1, total) for total in itertools.accumulate(sizes)]
    beside = list[int]()
    if near_misses:
        for cap, size, spec in zip(exact, sizes, parameters, strict=True):
            width = itemsize(spec)
            beside += [
                cap + width,
                *(max(1, n) for n in (cap - width, size // 2, size // 3)),
            ]
    return exact + beside


def cap_within(
    cap: int,
    mesh: MeshSpec,
    parameters: tuple[ParameterSpec, ...],
    capabilities: Capabilities,
) -> int:
    """Return the nearest bucket cap, in bytes, with a feature that a contract covers."""
    largest = most_group_bytes(mesh, parameters)
    if not capabilities.covers("buckets", "cap splits"):
        return max(cap, largest)
    if not capabilities.covers("buckets", "cap does not split"):
        return max(1, min(cap, largest - 1))
    return cap
