"""Regions of memory: the bytes of strided tensors, and overlaps to the byte."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syncverify.trace.regions import MemoryRegion, strided_region, tensor_region


def floats(count: int) -> torch.Tensor:
    return torch.zeros(count)


@pytest.mark.parametrize(
    ("tensor", "start", "end", "repeats"),
    [
        (floats(10), 0, 40, ()),
        (floats(10)[2:5], 8, 20, ()),
        (floats(10).to(torch.bfloat16)[3:], 6, 20, ()),
        (floats(12).view(3, 4)[1], 16, 32, ()),
        (floats(12).view(3, 4)[:, 1], 4, 40, ((3, 16),)),
        (floats(12).view(3, 4)[:, 1:3], 4, 44, ((3, 16),)),
        (floats(12).view(3, 4).T, 0, 48, ()),
        (floats(12)[::5], 0, 44, ((3, 20),)),
        (floats(3)[1].expand(7), 4, 8, ()),
        (floats(10)[4:4], 16, 16, ()),
        (torch.zeros(()), 0, 4, ()),
        (torch.zeros(2, 0, 3), 0, 0, ()),
    ],
)
def test_region_holds_the_bytes_of_a_tensor(
    tensor: torch.Tensor, start: int, end: int, repeats: tuple[tuple[int, int], ...]
) -> None:
    assert tensor_region(tensor, 0) == MemoryRegion(0, start, end, repeats)


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((2, 0, 3), (1, 1, 1), MemoryRegion(7, 8, 8)),  # no bytes, wherever it lies
        ((1, 4), (9, 2), MemoryRegion(7, 8, 36, ((4, 8),))),  # of one row only
        ((2, 3), (20, 5), MemoryRegion(7, 8, 132, ((2, 80), (3, 20)))),
        ((3, 2), (5, 20), MemoryRegion(7, 8, 132, ((2, 80), (3, 20)))),
    ],
)
def test_region_holds_the_bytes_of_a_layout(
    shape: tuple[int, ...], strides: tuple[int, ...], expected: MemoryRegion
) -> None:
    assert strided_region(7, 2, shape, strides, 4) == expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((0, 0, 8), (0, 4, 12), True),
        ((0, 0, 8), (0, 8, 12), False),
        ((0, 0, 8), (0, 2, 3), True),
        ((0, 0, 8), (1, 0, 8), False),
        ((0, 4, 4), (0, 0, 8), False),
        ((0, 4, 16), (0, 0, 20, ((2, 16),)), False),  # between two runs of 4 bytes
        ((0, 4, 17), (0, 0, 20, ((2, 16),)), True),
    ],
)
def test_regions_overlap_where_they_share_a_byte(
    one: tuple[Any, ...], other: tuple[Any, ...], expected: object
) -> None:
    assert MemoryRegion(*one).overlaps(MemoryRegion(*other)) is expected
    assert MemoryRegion(*other).overlaps(MemoryRegion(*one)) is expected


def elements(offset: int, sizes: list[int], strides: list[int]) -> set[int]:
    """List the elements that a strided view holds, the slow way."""
    places = {offset} if all(sizes) else set()
    for size, stride in zip(sizes, strides, strict=True):
        places = {place + i * stride for place in places for i in range(size)}
    return places


layouts = st.tuples(
    st.integers(0, 6),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 7)), max_size=3),
)


@pytest.mark.slow
@given(layouts, layouts)
def test_strided_views_overlap_exactly_where_they_share_an_element(
    one: tuple[int, list[tuple[int, int]]], other: tuple[int, list[tuple[int, int]]]
) -> None:
    buffer = floats(100)
    regions, places = [], []
    for offset, dims in (one, other):
        sizes, strides = [size for size, _ in dims], [stride for _, stride in dims]
        regions.append(tensor_region(buffer.as_strided(sizes, strides, offset), 0))
        places.append(elements(offset, sizes, strides))
    assert regions[0].overlaps(regions[1]) is bool(places[0] & places[1])
