"""What a synchronizer is going to do, as a table, before it does it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from typing_extensions import override

from .grouping import BucketPlan
from .scope import ReduceScope

_HEADER = (
    "bucket",
    "parameters",
    "dtype",
    "bytes",
    "padding",
    "ranks",
    "axes",
    "launch",
)


@dataclass(frozen=True, slots=True)
class ExplainedBucket:
    """One bucket of a plan.

    Attributes:
        index: As in messages.
        parameters: Names, in the order of the buffer.
        grad_dtype: In which gradients are accumulated and summed.
        device: Where the buffer lives.
        payload_bytes: Of this rank's local gradients.
        padding_bytes: Between and after them; always zero, but reduced as well.
        ranks: Global ranks that sum the bucket; empty where it stays local.
        axes: The mesh axes that span them, by name or else by index.
        launch_position: Among this rank's reductions; None where it stays local.
        num_shards: Into how many parts, owned by one rank each, it is reduced; 1 where
            every rank gets all of it.
    """

    index: int
    parameters: tuple[str, ...]
    grad_dtype: str
    device: str
    payload_bytes: int
    padding_bytes: int
    ranks: tuple[int, ...]
    axes: tuple[str, ...]
    launch_position: int | None
    num_shards: int = 1


@dataclass(frozen=True, slots=True)
class Explanation:
    """The buckets of one rank, in launch order; prints as a table.

    Attributes:
        buckets: All of them, local ones included.
    """

    buckets: tuple[ExplainedBucket, ...]

    @classmethod
    def of(cls, plans: Iterable[BucketPlan]) -> Self:
        """Describe a plan.

        Args:
            plans: In launch order.

        Returns:
            The same in words and numbers.
        """
        buckets: list[ExplainedBucket] = []
        num_launches = 0
        for plan in plans:
            buckets.append(_explain(plan, num_launches if plan.scope else None))
            num_launches += plan.scope is not None
        return cls(tuple(buckets))

    @property
    def collectives(self) -> tuple[str, ...]:
        """What is launched in every step, in order."""
        return tuple(
            f"{'reduce_scatter' if b.num_shards > 1 else 'all_reduce'}"
            f" of {b.payload_bytes + b.padding_bytes} bytes of {b.grad_dtype}"
            f" over ranks {', '.join(map(str, b.ranks))}"
            for b in self.buckets
            if b.launch_position is not None
        )

    @override
    def __str__(self) -> str:
        payload_bytes = sum(bucket.payload_bytes for bucket in self.buckets)
        padding_bytes = sum(bucket.padding_bytes for bucket in self.buckets)
        rows = [_HEADER, *(_row(bucket) for bucket in self.buckets)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [_aligned(row, widths) for row in rows]
        lines.append(
            f"{len(self.collectives)} reductions a step, of {len(self.buckets)}"
            f" buckets; {payload_bytes} bytes and {padding_bytes} of padding"
        )
        return "\n".join(lines)


def _explain(plan: BucketPlan, launch_position: int | None) -> ExplainedBucket:
    itemsize = plan.key.grad_dtype.itemsize
    payload_numel = sum(member.local_numel for member in plan.members)
    return ExplainedBucket(
        plan.index,
        tuple(member.name for member in plan.members),
        str(plan.key.grad_dtype).removeprefix("torch."),
        str(plan.key.device),
        payload_bytes=payload_numel * itemsize,
        padding_bytes=(plan.buffer_numel - payload_numel) * itemsize,
        ranks=plan.scope.ranks if plan.scope else (),
        axes=_axes(plan.scope) if plan.scope else (),
        launch_position=launch_position,
        num_shards=plan.num_shards,
    )


def _axes(scope: ReduceScope) -> tuple[str, ...]:
    names = scope.mesh.mesh_dim_names if scope.mesh else None
    return tuple(names[axis] if names else str(axis) for axis in scope.axes)


def _row(bucket: ExplainedBucket) -> tuple[str, ...]:
    first, *rest = bucket.parameters
    position = bucket.launch_position
    return (
        str(bucket.index),
        f"{first} and {len(rest)} more" if rest else first,
        bucket.grad_dtype,
        str(bucket.payload_bytes),
        str(bucket.padding_bytes),
        ", ".join(map(str, bucket.ranks)) or "this one",
        ", ".join(bucket.axes) or "-",
        "-" if position is None else str(position),
    )


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    return "  ".join(padded).rstrip()
