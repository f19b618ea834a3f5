"""What a synchronizer is going to do, as a table, before it does it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from typing_extensions import override

from .grouping import BucketPlan
from .per_axis import goes_axis_by_axis
from .scope import ReduceScope, spanned_ranks

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
        launch_position: Among this rank's buckets; None where it stays local.
        phases: The global ranks of each of its all-reduces, in turn: all `ranks` at
            once, or those of one axis after the other, see Note [Axis by axis].
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
    phases: tuple[tuple[int, ...], ...]

    @property
    def buffer_bytes(self) -> int:
        """What each of its all-reduces moves."""
        return self.payload_bytes + self.padding_bytes


@dataclass(frozen=True, slots=True)
class ExplainedCollective:
    """One all-reduce of every step.

    Attributes:
        bucket: Whose buffer it sums.
        ranks: Global ranks that take part.
    """

    bucket: ExplainedBucket
    ranks: tuple[int, ...]

    @override
    def __str__(self) -> str:
        ranks = ", ".join(map(str, self.ranks))
        dtype = self.bucket.grad_dtype
        return f"all_reduce of {self.bucket.buffer_bytes} bytes of {dtype} over ranks {ranks}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The buckets of one rank, in launch order; prints as a table.

    Attributes:
        buckets: All of them, local ones included.
        is_rebuilt: Whether they were cut anew in the order that was observed.
    """

    buckets: tuple[ExplainedBucket, ...]
    is_rebuilt: bool = False

    @classmethod
    def of(cls, plans: Iterable[BucketPlan], *, is_rebuilt: bool = False) -> Self:
        """Describe a plan.

        Args:
            plans: In launch order.
            is_rebuilt: Whether they replaced the first plan.

        Returns:
            The same in words and numbers.
        """
        buckets: list[ExplainedBucket] = []
        num_launches = 0
        for plan in plans:
            buckets.append(_explain(plan, num_launches if plan.scope else None))
            num_launches += plan.scope is not None
        return cls(tuple(buckets), is_rebuilt)

    @property
    def collectives(self) -> tuple[str, ...]:
        """What is launched in every step, in order."""
        return tuple(map(str, (*self._during_backward(), *self._in_wait())))

    @property
    def exposed_tail_bytes(self) -> int:
        """What no backward can hide: the bytes launched once the last gradient is there.

        Those of the bucket that is launched last, and of every axis but the first of
        those that go axis by axis. A prediction: it takes backward to bring gradients
        in the order of the plan, and the all-reduces before to be over by then.
        """
        exposed = [*self._during_backward()[-1:], *self._in_wait()]
        return sum(collective.bucket.buffer_bytes for collective in exposed)

    def _during_backward(self) -> list[ExplainedCollective]:
        return [ExplainedCollective(b, b.phases[0]) for b in self.buckets if b.phases]

    def _in_wait(self) -> list[ExplainedCollective]:
        return [
            ExplainedCollective(bucket, ranks)
            for bucket in self.buckets
            for ranks in bucket.phases[1:]
        ]

    @override
    def __str__(self) -> str:
        payload_bytes = sum(bucket.payload_bytes for bucket in self.buckets)
        padding_bytes = sum(bucket.padding_bytes for bucket in self.buckets)
        rows = [_HEADER, *(_row(bucket) for bucket in self.buckets)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [_aligned(row, widths) for row in rows]
        lines.append(
            f"{len(self.collectives)} all-reduces a step, of {len(self.buckets)}"
            f" buckets; {payload_bytes} bytes and {padding_bytes} of padding;"
            f" exposed tail {self.exposed_tail_bytes} bytes"
            + "; rebuilt in the order in which gradients were ready"
            * self.is_rebuilt
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
        phases=_phases(plan),
    )


def _phases(plan: BucketPlan) -> tuple[tuple[int, ...], ...]:
    scope = plan.scope
    if scope is None:
        return ()
    if scope.mesh is None or not goes_axis_by_axis(plan):
        return (scope.ranks,)
    return tuple(spanned_ranks(scope.mesh, (axis,)) for axis in scope.axes)


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
