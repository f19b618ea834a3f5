"""Coordinate classes: the few ranks of a large mesh that represent all others.

A rank's actions depend on the sizes of its local parts, and on its coordinates only where a
program singles out coordinates. Sizes change at a few coordinates of each mesh axis:
`torch.chunk` gives the first ranks a full chunk, at most one rank a smaller chunk, and the
rest none; replicated axes change nothing. Each axis therefore falls into a few intervals. A
coordinate class is a box of intervals, one per axis, and the number of classes depends on
the parameters, not on the number of ranks.

Up to three coordinates of each interval play:

* the first and the last, because programs single out the ends of an axis;
* one in between, at an odd distance from the first, because programs tell even from odd.

The ranks that play form a grid. If one of them is in a communicator along some mesh axes,
then all classes along these axes play as well, and their logs can be compared.
"""

import itertools
import math
from collections.abc import Iterable, Iterator

from syncverify.scenario.layout import meshes_of, strides
from syncverify.scenario.specs import REPLICATE, MeshSpec, ParameterSpec, sharded_dim


def coordinate_classes(
    mesh: MeshSpec, parameters: Iterable[ParameterSpec], axis: int
) -> tuple[range, ...]:
    """Cut a mesh axis where a local part changes its size: ordered intervals, none empty."""
    size = mesh.shape[axis]
    cuts = {0, size}
    for spec in parameters:
        placements = spec.placements or (REPLICATE,) * len(mesh.shape)
        dim = sharded_dim(placements[axis])
        if dim is None:
            continue
        lengths = {spec.global_shape[dim]}  # of the pieces that the axes before cut
        for outer, code in zip(mesh.shape[:axis], placements[:axis], strict=True):
            if sharded_dim(code) == dim:
                lengths = {e for whole in lengths for e in _parts(whole, outer)}
        cuts.update(*(_cuts(length, size) for length in lengths))
    return tuple(itertools.starmap(range, itertools.pairwise(sorted(cuts))))


def representatives(
    mesh: MeshSpec, parameters: tuple[ParameterSpec, ...]
) -> tuple[int, ...]:
    """List the ranks that represent all others, in ascending order."""
    # No smaller set is a grid on several meshes.
    if len(meshes_of(mesh, parameters)) > 1:
        return tuple(range(mesh.num_ranks))
    offsets = [
        [stride * index for part in parts for index in _chosen(part)]
        for axis, stride in enumerate(strides(mesh))
        if (parts := coordinate_classes(mesh, parameters, axis))
    ]
    return tuple(sum(offset) for offset in itertools.product(*offsets))


def _parts(length: int, size: int) -> Iterator[int]:
    """Yield the lengths of the chunks that a mesh axis of a size cuts from a dim."""
    chunk = math.ceil(length / size)
    for first in {0, *_cuts(length, size)}:
        yield max(0, min(chunk, length - first * chunk))


def _cuts(length: int, size: int) -> set[int]:
    """List the coordinates where a chunk's size changes, by the rule of `local_shape`."""
    chunk = math.ceil(length / size)
    cuts = {length // chunk, math.ceil(length / chunk)} if chunk else set()
    return {cut for cut in cuts if cut < size}


def _chosen(part: range) -> list[int]:
    """List the coordinates of an interval that play: see the module's docstring."""
    middle = len(part) // 2
    odd = middle if middle % 2 else middle - 1
    return sorted({part[0], part[max(odd, 0)], part[-1]})
