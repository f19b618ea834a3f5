"""Which ranks of a large mesh stand for all others.

What a rank does depends on the sizes of its local parts, and on its coordinates only as
far as a program singles some out. Sizes change at a few coordinates of each mesh axis:
`torch.chunk` gives the first ranks a full chunk, perhaps one rank a smaller one, and the
rest none; replicated axes change nothing. So each axis falls into a few intervals, a
coordinate class of the mesh is a box of them, and the number of classes depends on the
parameters, not on the number of ranks.

Of each interval the first and the last coordinate play, because code singles out the ends
of an axis, and one in between, an odd number of steps from the first, because code tells
even from odd. The ranks that play form a grid: of any communicator along mesh axes that one
of them is in, the others' classes along these axes play as well, so their logs can be
compared.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

from syncverify.layout import axis_name, coordinates, strides
from syncverify.scenario import REPLICATE, Scenario, sharded_dim


def coordinate_classes(scenario: Scenario, axis: int) -> tuple[range, ...]:
    """Cut a mesh axis where the local part of some parameter changes its size.

    Args:
        scenario: Its mesh and parameters.
        axis: Index of the mesh axis.

    Returns:
        Intervals of coordinates, in order, none of them empty.
    """
    size = scenario.mesh.shape[axis]
    cuts = {0, size}
    for spec in scenario.parameters:
        placements = spec.placements or (REPLICATE,) * len(scenario.mesh.shape)
        dim = sharded_dim(placements[axis])
        if dim is None:
            continue
        outer = [
            scenario.mesh.shape[before]
            for before in range(axis)
            if sharded_dim(placements[before]) == dim
        ]
        for length in _lengths(spec.global_shape[dim], outer):
            cuts |= {cut for cut in _cuts(length, size) if cut < size}
    return tuple(range(low, high) for low, high in itertools.pairwise(sorted(cuts)))


def representatives(scenario: Scenario) -> tuple[int, ...]:
    """List the ranks that stand for all, in ascending order."""
    steps = [
        [
            stride * index
            for part in coordinate_classes(scenario, axis)
            for index in _chosen(part)
        ]
        for axis, stride in enumerate(strides(scenario.mesh))
    ]
    return tuple(sum(step) for step in itertools.product(*steps))


def box(scenario: Scenario, rank: int) -> str:
    """Name the coordinates of a rank's class, such as `dp=0..62, tp=7`."""
    parts = [
        next(part for part in coordinate_classes(scenario, axis) if index in part)
        for axis, index in enumerate(coordinates(scenario.mesh, rank))
    ]
    return ", ".join(
        f"{axis_name(scenario.mesh, axis)}={_interval(part)}"
        for axis, part in enumerate(parts)
    )


def _interval(part: range) -> str:
    return str(part[0]) if len(part) == 1 else f"{part[0]}..{part[-1]}"


def _lengths(length: int, sizes: Iterable[int]) -> set[int]:
    """List the lengths of a dim that is left after mesh axes of these sizes cut it."""
    lengths = {length}
    for size in sizes:
        lengths = {part for whole in lengths for part in _parts(whole, size)}
    return lengths


def _parts(length: int, size: int) -> Iterator[int]:
    chunk = math.ceil(length / size)
    for first in {0, *(cut for cut in _cuts(length, size) if cut < size)}:
        yield max(0, min(chunk, length - first * chunk))


def _cuts(length: int, size: int) -> set[int]:
    """List where the size of a chunk differs from the one before; see `local_shape`."""
    chunk = math.ceil(length / size)
    if chunk == 0:
        return set()
    return {length // chunk, math.ceil(length / chunk)}


def _chosen(part: range) -> list[int]:
    middle = len(part) // 2
    odd = middle if middle % 2 else middle - 1
    return sorted({part[0], part[max(odd, 0)], part[-1]})
