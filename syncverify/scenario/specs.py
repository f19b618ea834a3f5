"""Specs of the mesh and of a parameter: the parts that scenarios are made of."""

import math
from collections.abc import Iterator
from dataclasses import Field, dataclass, fields
from typing import Any

from typing_extensions import override

DTYPES = ("float32", "bfloat16", "float16", "float64")
# Orders of the ranks in a scenario's mesh. In both, ranks ascend or descend along one axis after
# another: `row_major` ascends along the last axis first, `permuted` descends along the first axis
# first. Other meshes of a parameter may be `column_major`, which ascends along the first axis first,
# or `reversed`, which descends along the last one first.
ORDERS = ("row_major", "permuted")
# The mesh of a parameter that is the scenario's own one, a word of its topic.
OWN_MESH = "own"

# One code per mesh axis.
Placements = tuple[str, ...]
# Codes of one mesh axis. `Partial` arrives in the gradient, and the parameter itself
# is replicated; an absent axis is no axis of the parameter's mesh, which is a sub-mesh.
REPLICATE = "R"
PARTIAL = "P"
ABSENT = "-"


def shard(dim: int) -> str:
    """Return the placement that splits a tensor along one of its dims."""
    return f"S{dim}"


def strided_shard(dim: int) -> str:
    """Return the placement of a mesh axis that cuts a dim after the later axes did.

    It stands for torch's `_StridedShard`. Example: FSDP over tensor parallelism.
    """
    return f"_S{dim}"


def is_strided(placement: str) -> bool:
    """Tell whether a placement is one of `strided_shard`."""
    return placement.startswith("_")


def sharded_dim(placement: str) -> int | None:
    """Return the tensor dim that a placement cuts, or None."""
    return int(placement.lstrip("_S")) if "S" in placement else None


def is_legal(placements: Placements) -> bool:
    """Tell whether some axis has the tensor, and a later one cuts the dim of each strided shard."""
    return set(placements) != {ABSENT} and all(
        not is_strided(code) or code.removeprefix("_") in placements[axis:]
        for axis, code in enumerate(placements)
    )


class Pasteable:
    """A dataclass whose `repr` is a call with the arguments that differ from their defaults.

    `eval(repr(value)) == value` with the public names of `syncverify`, as in `@example`.
    """

    __slots__ = ()

    @override
    def __repr__(self) -> str:
        words = (f"{each.name}={getattr(self, each.name)!r}" for each in _changed(self))
        return f"{type(self).__name__}({', '.join(words)})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: FBT001  # a protocol
        """Print with line breaks, in IPython and in the examples of Hypothesis."""
        with printer.group(4, f"{type(self).__name__}(", ")"):
            for number, each in enumerate(_changed(self)):
                if number:
                    printer.text(",")
                    printer.breakable()
                printer.text(f"{each.name}=")
                printer.pretty(getattr(self, each.name))


def _changed(value: Any) -> Iterator[Field[Any]]:
    """Yield the fields of a dataclass that differ from their defaults."""
    for each in fields(value):
        if getattr(value, each.name) != each.default:
            yield each


@dataclass(frozen=True, slots=True, repr=False)
class MeshSpec(Pasteable):
    """A device mesh over all ranks.

    Attributes:
        shape: Number of ranks along each mesh axis.
        axis_names: One name per mesh axis; empty for a mesh without names.
        order: Order of the ranks in the mesh; that of a scenario is one of `ORDERS`.
    """

    shape: tuple[int, ...]
    axis_names: tuple[str, ...]
    order: str = "row_major"

    @property
    def num_ranks(self) -> int:
        """Count the ranks of the mesh."""
        return math.prod(self.shape)

    @property
    def descends(self) -> bool:
        """Tell whether ranks descend along the axes."""
        return self.order in {"permuted", "reversed"}

    @property
    def first_axis_first(self) -> bool:
        """Tell whether neighboring ranks differ along the first axis, and not along the last."""
        return self.order in {"permuted", "column_major"}


def num_pieces(mesh: MeshSpec, placements: Placements, dim: int) -> int:
    """Count the pieces into which all mesh axes together cut a tensor dim."""
    return math.prod(
        size
        for size, code in zip(mesh.shape, placements, strict=True)
        if sharded_dim(code) == dim
    )


def split_factor(mesh: MeshSpec, placements: Placements, axis: int) -> int:
    """Return the number of pieces into which later axes cut the dim of a strided shard."""
    dim = sharded_dim(placements[axis])
    later = zip(mesh.shape[axis + 1 :], placements[axis + 1 :], strict=True)
    return math.prod(size for size, code in later if sharded_dim(code) == dim)


@dataclass(frozen=True, slots=True, repr=False)
class ParameterSpec(Pasteable):
    """One parameter of the model.

    Attributes:
        name: Name of the parameter in every message.
        global_shape: Shape of the whole tensor. Each rank holds all of an ordinary parameter.
        placements: One code per axis of the parameter's mesh: `R` (replicated), `P` (replicated, with a
            gradient that arrives as `Partial`), `S<dim>` (sharded along a tensor dim),
            `_S<dim>` (strided), `-` (the axis is absent from the parameter's sub-mesh).
            None for an ordinary tensor, which no axis reduces.
        dtype: Name of the parameter's dtype.
        grad_dtype: Name of the gradient's dtype; None for the parameter's dtype.
        requires_grad: False for a frozen parameter.
        group: Index of the parameter group that lists the parameter.
        num_listed: Number of times that the group lists the parameter.
        also_in_next_group: Whether the next group lists the parameter, too.
        memory_format: Memory layout of the local part, a word of its topic.
        used: Ranks and micro-batches with a loss that depends on the parameter, a word
            of its topic. Example: `not_on_odd_ranks`.
        use: Operators that the loss applies to the parameter, a word of its topic.
            Example: `checkpointed`.
        gradient: Special values of the gradient, a word of its topic. Example: `inf`.
        on_mesh: Mesh of the placements, a word of its topic. Example: `transposed`.
    """

    name: str
    global_shape: tuple[int, ...]
    placements: Placements | None
    dtype: str = "float32"
    grad_dtype: str | None = None
    requires_grad: bool = True
    group: int = 0
    num_listed: int = 1
    also_in_next_group: bool = False
    memory_format: str = "contiguous"
    used: str = "always"
    use: str = "plain"
    gradient: str = "finite"
    on_mesh: str = OWN_MESH

    @property
    def effective_grad_dtype(self) -> str:
        """Name the dtype in which gradients accumulate."""
        return self.grad_dtype or self.dtype
