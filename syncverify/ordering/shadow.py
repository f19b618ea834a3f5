"""Remember who touched which bytes of a storage last.

One cell for each distinct region that was ever touched. Of each lane it keeps the last
read and the last write: whoever is ordered after that one is ordered after all before it
on the same lane.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from syncverify.memory import MemoryRegion

# By lane: position in the lane, and index of the event.
Last = dict[int, tuple[int, int]]
_CellKey = tuple[int, int, tuple[tuple[int, int], ...]]


@dataclass(slots=True, eq=False)
class Cell:
    """The last accesses to a region.

    Attributes:
        region: The bytes.
        reads: Reads since the writes.
        writes: The last write, or several that nothing orders.
        neighbours: Cells that share a byte with this one, itself included.
    """

    region: MemoryRegion
    reads: Last = field(default_factory=dict)
    writes: Last = field(default_factory=dict)
    # Each has this one among its own: a text of them all would not end soon.
    neighbours: list[Cell] = field(default_factory=list, repr=False)


@dataclass(slots=True, eq=False)
class StorageShadow:
    """What is known of one storage.

    Most are used by one lane only, where all is in order. So uses are only noted down
    until a second lane comes.

    Attributes:
        last: The last access of each lane, to whatever bytes.
    """

    last: Last = field(default_factory=dict)
    _noted: list[tuple[MemoryRegion, bool, tuple[int, int]]] = field(
        default_factory=list
    )
    _cells: dict[_CellKey, Cell] = field(default_factory=dict)
    # Cells in order of their first byte; those of similar length together, so that a
    # long one does not have to be looked for among all short ones.
    _by_length: dict[int, list[tuple[int, int, Cell]]] = field(default_factory=dict)

    def note(self, region: MemoryRegion, at: tuple[int, int], *, writes: bool) -> None:
        """Remember an access of the only lane there is."""
        self._noted.append((region, writes, at))

    def cell(self, region: MemoryRegion) -> Cell:
        """Return the cell of a region, which has at least one byte."""
        if self._noted:
            self._unfold()
        key = (region.start_byte, region.end_byte, region.repeats)
        known = self._cells.get(key)
        if known is None:
            known = self._cells[key] = Cell(region)
            self._introduce(known)
        return known

    def _unfold(self) -> None:
        noted, self._noted = self._noted, []
        (lane,) = self.last
        for region, writes, at in noted:
            cell = self.cell(region)
            if writes:
                cell.reads.clear()
            (cell.writes if writes else cell.reads)[lane] = at

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
