"""Strategies for bucket caps."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator

import torch
from hypothesis import strategies as st

from syncverify.layout import local_shape
from syncverify.scenario import MeshSpec, ParameterSpec

_EVERYTHING_IN_ONE_BUCKET_BYTES = 2**20
# Around the size of one small parameter, and of several.
_SPLITTING_CAP_BYTES = (64, 512)


@functools.cache
def bucket_caps() -> st.SearchStrategy[int]:
    """Generate bucket caps in bytes that split and that do not; shrinks to no split."""
    splitting = [st.integers(1, limit) for limit in _SPLITTING_CAP_BYTES]
    return st.one_of(st.just(_EVERYTHING_IN_ONE_BUCKET_BYTES), *splitting)


def bucket_caps_for(
    mesh: MeshSpec, parameters: tuple[ParameterSpec, ...], *, near_misses: bool
) -> st.SearchStrategy[int]:
    """Generate bucket caps for some parameters; shrinks to no split.

    Args:
        mesh: Their mesh.
        parameters: As many as there are.
        near_misses: Whether to list caps that are one element off, and parts of a
            parameter, beside those that the first parameters on rank 0 fill to the byte.

    Returns:
        A strategy for caps in bytes.
    """
    sizes = [(_local_numel(mesh, spec), _itemsize(spec)) for spec in parameters]
    exact = itertools.accumulate(numel * itemsize for numel, itemsize in sizes)
    caps = [max(1, total) for total in exact]
    if near_misses:
        caps += list(_near(caps, sizes))
    return bucket_caps() | st.sampled_from(caps)


def _near(caps: list[int], sizes: list[tuple[int, int]]) -> Iterator[int]:
    for total, (numel, itemsize) in zip(caps, sizes, strict=True):
        yield total + itemsize
        yield max(1, total - itemsize)
        for part in (2, 3):
            yield max(1, numel * itemsize // part)


def _local_numel(mesh: MeshSpec, spec: ParameterSpec) -> int:
    return math.prod(local_shape(mesh, spec, 0))


def _itemsize(spec: ParameterSpec) -> int:
    dtype: torch.dtype = getattr(torch, spec.effective_grad_dtype)
    return dtype.itemsize
