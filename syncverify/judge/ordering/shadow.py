"""The last uses of each byte of a storage.

A storage has one cell per distinct region. A cell keeps the last read and the last write of
each lane. That is enough: an access that is ordered after the last entry of a lane is
ordered after all earlier entries of that lane.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from syncverify.trace.regions import MemoryRegion

# Position in the lane, from 1, and position of the record in the trace of its rank. A plain
# pair: each access makes one, and instances of a class would take 7 % of the detector's time.
LastUse = tuple[int, int]
Last = dict[int, LastUse]  # by lane
_CellKey = tuple[int, int, tuple[tuple[int, int], ...]]


@dataclass(slots=True, eq=False)
class Cell:
    """The last accesses to a region."""

    region: MemoryRegion
    # Reads that no later write of the region is ordered after.
    reads: Last = field(default_factory=dict)
    # Writes that no later write of the region is ordered after; often one.
    writes: Last = field(default_factory=dict)
    # No repr: neighbours refer to each other.
    neighbours: list[Cell] = field(default_factory=list, repr=False)


@dataclass(slots=True, eq=False)
class StorageShadow:
    """The last uses of one storage.

    One lane alone uses most storages, and its uses are in order. So uses are only noted in
    a list, without cells, until a second lane comes.
    """

    only_lane: int | None = None  # the only user so far; None once there are two
    last: Last = field(default_factory=dict)  # of each lane, to any bytes
    # All uses of the only lane, in order; empty once they are in cells.
    noted: list[LastUse] = field(default_factory=list)
    _cells: dict[_CellKey, Cell] = field(default_factory=dict)
    # Cells by bit length of their size, each list sorted by first byte. Cells of one list
    # have similar sizes, so a search for overlaps starts less than two cell sizes before the
    # region.
    _by_length: dict[int, list[tuple[int, int, Cell]]] = field(default_factory=dict)

    def note(self, at: LastUse) -> None:
        """Note a use by the only lane. A use of several regions is noted once."""
        assert self.only_lane is not None
        if self.last.get(self.only_lane) is not at:
            self.last[self.only_lane] = at
            self.noted.append(at)

    def cell(self, region: MemoryRegion) -> Cell:
        """Return the cell of a region.

        The cell of an empty region has itself as its only neighbour.
        """
        key = (region.start_byte, region.end_byte, region.repeats)
        known = self._cells.get(key)
        if known is None:
            known = self._cells[key] = Cell(region)
            self._introduce(known)
        return known

    def _introduce(self, cell: Cell) -> None:
        for other in self._near(cell.region):
            if other.region.overlaps(cell.region):
                other.neighbours.append(cell)
                cell.neighbours.append(other)
        cell.neighbours.append(cell)
        start, end = cell.region.start_byte, cell.region.end_byte
        similar = self._by_length.setdefault((end - start).bit_length(), [])
        insort(similar, (start, len(self._cells), cell))

    def _near(self, region: MemoryRegion) -> Iterator[Cell]:
        for num_bits, cells in self._by_length.items():
            longest = (1 << num_bits) - 1
            first = bisect_left(cells, (region.start_byte - longest + 1,))
            for _, _, cell in cells[first : bisect_left(cells, (region.end_byte,))]:
                yield cell
