"""Layouts: the axes of a device mesh, and their sizes."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from typing_extensions import override

from syncverify.errors import UsageError

# Pattern of names to axis and dimension, or a function that takes `name`, `whole` (the tensor),
# `coordinate` (a rank's place on each axis) and `sizes` (of the axes), and returns the rank's part.
Own = Mapping[str, Mapping[str, int]] | Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Layout:
    """The axes of a device mesh."""

    # Name and size of each axis, from the slowest one to the fastest one.
    axes: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, sizes: Mapping[str, int]) -> Self:
        """Return the layout with these sizes of axes.

        Raises:
            UsageError: There is no axis, or a size is no whole number above 0.
        """
        if not sizes:
            raise UsageError("expected a layout with an axis, such as {'dp': 2}")
        for name, size in sizes.items():
            if not isinstance(size, int) or size < 1:
                raise UsageError(
                    f"expected a size of axis {name!r} of 1 or more, not {size!r}"
                )
        return cls(tuple(sizes.items()))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the layout of a text such as `dp=2,tp=2`.

        Raises:
            UsageError: The text is something else, or names an axis twice.
        """
        try:
            pairs = [each.split("=") for each in text.split(",")]
            sizes = {name.strip(): int(size) for name, size in pairs}
        except ValueError:
            raise UsageError(
                f"expected a layout such as dp=2,tp=2, not {text!r}"
            ) from None
        if len(sizes) < len(pairs):
            raise UsageError(f"layout {text!r} names an axis twice")
        return cls.of(sizes)

    @override
    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.axes)

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return math.prod(size for _, size in self.axes)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the axes."""
        return tuple(name for name, _ in self.axes)

    @property
    def large_axes(self) -> dict[str, int]:
        """The axes with more than one rank, with their sizes."""
        return {name: size for name, size in self.axes if size > 1}

    def size(self, axes: Iterable[str]) -> int:
        """Return the number of ranks over some axes."""
        sizes = dict(self.axes)
        return math.prod(sizes[axis] for axis in axes)

    def coordinate(self, rank: int) -> dict[str, int]:
        """Return the place of a rank on each axis."""
        places = dict[str, int]()
        for name, size in reversed(self.axes):
            rank, places[name] = divmod(rank, size)
        return places

    def group(self, rank: int, axes: Iterable[str]) -> list[int]:
        """Return a rank, and the ranks that differ from it in their places on some axes alone."""
        own, free = self.coordinate(rank).items(), {*axes}
        return [
            other
            for other in range(self.num_ranks)
            if {name for name, _ in self.coordinate(other).items() - own} <= free
        ]

    def mesh(self, device: str) -> DeviceMesh:
        """Make the mesh; each rank has to call it."""
        sizes = tuple(size for _, size in self.axes)
        return init_device_mesh(device, sizes, mesh_dim_names=self.names)

    def of_ones(self) -> Self:
        """Return the layout with the same axes, each of one rank."""
        return type(self)(tuple((name, 1) for name in self.names))

    def alone(self, axis: str) -> Self:
        """Return the layout in which all other axes have one rank."""
        return type(self)(tuple((n, size if n == axis else 1) for n, size in self.axes))

    def smaller(self) -> Iterator[Self]:
        """Yield the layouts in which one axis has fewer ranks: axis by axis, the fewest first."""
        for name, size in self.axes:
            for less in (each for each in range(1, size) if size % each == 0):
                yield type(self)(tuple({**dict(self.axes), name: less}.items()))


def all_layouts(names: Iterable[str], max_ranks: int) -> list[Layout]:
    """Return the layouts of some axes with 2 ranks or more, up to a number; the smallest first.

    Sizes are powers of 2: those that divide the dimensions of most models and batches.
    """
    listed = [*names]
    powers = [2**power for power in range(max_ranks.bit_length())]
    sizes = product(powers, repeat=len(listed))
    layouts = [Layout(tuple(zip(listed, each, strict=True))) for each in sizes]
    fitting = [each for each in layouts if 2 <= each.num_ranks <= max_ranks]
    return sorted(fitting, key=lambda layout: layout.num_ranks)
