"""Cells that may share a byte are compared, and few others: storages have many cells."""

import pytest

from syncverify.judge.ordering.shadow import Cell, StorageShadow
from syncverify.trace.regions import MemoryRegion


def shadow_of(*regions: tuple[int, int]) -> StorageShadow:
    shadow = StorageShadow()
    for start, end in regions:
        shadow.cell(MemoryRegion(0, start, end))
    return shadow


def bounds(cells: list[Cell]) -> list[tuple[int, int]]:
    return sorted((c.region.start_byte, c.region.end_byte) for c in cells)


@pytest.mark.parametrize("length", [15, 16, 1])
def test_a_byte_has_as_many_cells_as_reach_it(length: int) -> None:
    """Those of 16 to 31 bytes are looked for together, as are those of 8 to 15."""
    shadow = shadow_of(*[(n, n + length) for n in range(200)])
    found = shadow.cell(MemoryRegion(0, 100, 101)).neighbours
    reaching = [(n, n + length) for n in range(101 - length, 101)]
    assert bounds(found) == sorted({*reaching, (100, 101)})
    near = list(shadow._near(MemoryRegion(0, 100, 102)))
    most = {15: 15, 16: 31, 1: 1}[length]
    assert len([c for c in near if c.region.start_byte <= 100]) <= most + 1


def test_a_long_cell_is_not_looked_for_among_short_ones() -> None:
    shadow = shadow_of((0, 2_000), *[(n, n + 8) for n in range(0, 2_000, 8)])
    found = shadow.cell(MemoryRegion(0, 800, 804)).neighbours
    assert bounds(found) == [(0, 2_000), (800, 804), (800, 808)]
    # Of 250 short cells those that touch the region, and the long one.
    assert len(list(shadow._near(MemoryRegion(0, 800, 804)))) <= 4


def test_cells_are_distinguished_by_start_end_and_repeats() -> None:
    shadow = StorageShadow()
    regions = [
        MemoryRegion(0, 0, 16),
        MemoryRegion(0, 0, 8),
        MemoryRegion(0, 8, 16),
        MemoryRegion(0, 0, 16, ((2, 12),)),
    ]
    cells = [shadow.cell(region) for region in regions]
    assert len({id(cell) for cell in cells}) == 4
    assert all(shadow.cell(r) is c for r, c in zip(regions, cells, strict=True))
    assert [len(cell.neighbours) for cell in cells] == [4, 3, 3, 4]
