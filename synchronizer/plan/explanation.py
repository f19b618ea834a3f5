"""The plan of a synchronizer, as values and as a table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from typing_extensions import override

from syncverify.synchronizer.plan.grouping import BucketPlan
from syncverify.synchronizer.plan.wire_format import WireFormat
from syncverify.synchronizer.ranks.scope import ReduceScope, rank_list

_HEADER = "bucket parameters dtype bytes padding op wire ranks axes launch"


@dataclass(frozen=True, slots=True)
class ExplainedCollective:
    """One collective of every step.

    Attributes:
        operation: `all_reduce` or `reduce_scatter`.
        moved_bytes: Bytes that each rank contributes.
        dtype: Dtype of these bytes.
        ranks: Global ranks that take part.
    """

    operation: str
    moved_bytes: int
    dtype: str
    ranks: tuple[int, ...]

    @override
    def __str__(self) -> str:
        return (
            f"{self.operation} of {self.moved_bytes} bytes of {self.dtype} over ranks"
            f" {rank_list(self.ranks)}"
        )


@dataclass(frozen=True, slots=True)
class ExplainedBucket:
    """One bucket of a plan.

    Attributes:
        index: Number of the bucket, as in messages.
        parameters: Names, in the order of the buffer.
        grad_dtype: Dtype in which gradients are accumulated.
        device: Device of the buffer.
        payload_bytes: Bytes of this rank's local gradients.
        padding_bytes: Bytes between and after the gradients, which are reduced too: zeros,
            and the flags of `unused="keep_none"`.
        op: "sum", "avg", or "sum / n" where only some of the axes are averaged; empty
            where the bucket stays local.
        wire_dtype: Dtype in which gradients are sent and summed; empty where the bucket
            stays local.
        wire_bytes: Bytes of the sum, padding included; 0 where the bucket stays local.
        ranks: Global ranks that sum the bucket; empty where it stays local.
        axes: The mesh axes that span the ranks, by name or else by index; empty where there is
            no mesh, and where the bucket stays local.
        launch_position: Position among this rank's launches; None where there is
            nothing to communicate.
        num_shards: Number of equal parts, owned by one rank each, into which the bucket
            is reduced; 1 where every rank gets all of it.
    """

    index: int
    parameters: tuple[str, ...]
    grad_dtype: str
    device: str
    payload_bytes: int
    padding_bytes: int
    op: str
    wire_dtype: str
    wire_bytes: int
    ranks: tuple[int, ...]
    axes: tuple[str, ...]
    launch_position: int | None
    num_shards: int = 1

    @property
    def collective(self) -> ExplainedCollective | None:
        """The collective of the bucket, if there is one; a comm hook may choose others."""
        if not self.ranks:
            return None
        operation = "reduce_scatter" if self.num_shards > 1 else "all_reduce"
        return ExplainedCollective(
            operation, self.wire_bytes, self.wire_dtype, self.ranks
        )


@dataclass(frozen=True, slots=True)
class Explanation:
    """The buckets of one rank, in launch order; prints as a table.

    Attributes:
        buckets: All buckets, local ones included.
        is_rebuilt: Whether the buckets were cut anew in the observed order.
    """

    buckets: tuple[ExplainedBucket, ...]
    is_rebuilt: bool = False

    @classmethod
    def of(cls, plans: Iterable[BucketPlan], *, is_rebuilt: bool = False) -> Self:
        """Describe plans in launch order."""
        buckets: list[ExplainedBucket] = []
        num_launches = 0
        for plan in plans:
            is_launched = plan.scope is not None
            buckets.append(_explain(plan, num_launches if is_launched else None))
            num_launches += is_launched
        return cls(tuple(buckets), is_rebuilt)

    @property
    def collectives(self) -> tuple[str, ...]:
        """Collectives of every step without a comm hook, in order."""
        found = (bucket.collective for bucket in self.buckets)
        return tuple(str(each) for each in found if each)

    @property
    def exposed_tail_bytes(self) -> int:
        """Bytes that no backward can hide, launched after the last gradient.

        They belong to the bucket that is launched last. The number is a prediction:
        backward has to bring gradients in the order of the plan, and the earlier
        reductions have to be complete by then.
        """
        return next((b.wire_bytes for b in reversed(self.buckets) if b.ranks), 0)

    @override
    def __str__(self) -> str:
        rows = [_HEADER.split(), *map(_row, self.buckets)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join([*(_aligned(row, widths) for row in rows), self._summary()])

    def _summary(self) -> str:
        payload_bytes = sum(bucket.payload_bytes for bucket in self.buckets)
        padding_bytes = sum(bucket.padding_bytes for bucket in self.buckets)
        num_reductions = sum(bucket.collective is not None for bucket in self.buckets)
        buckets = _counted(len(self.buckets), "bucket")
        parts = [
            f"{_counted(num_reductions, 'reduction')} a step, of {buckets}",
            f"{payload_bytes} bytes and {padding_bytes} of padding",
            f"exposed tail {self.exposed_tail_bytes} bytes",
        ]
        if self.is_rebuilt:
            parts.append("rebuilt in the order in which gradients were ready")
        return "; ".join(parts)


def _explain(plan: BucketPlan, launch_position: int | None) -> ExplainedBucket:
    itemsize = plan.key.grad_dtype.itemsize
    payload_numel = sum(member.local_numel for member in plan.members)
    local = ExplainedBucket(
        plan.index,
        tuple(member.name for member in plan.members),
        _name(plan.key.grad_dtype),
        str(plan.key.device),
        payload_bytes=payload_numel * itemsize,
        padding_bytes=(plan.buffer_numel - payload_numel) * itemsize,
        op="",
        wire_dtype="",
        wire_bytes=0,
        ranks=(),
        axes=(),
        launch_position=launch_position,
        num_shards=plan.num_shards,
    )
    if plan.scope is None:
        return local
    wire = plan.key.wire
    return replace(
        local,
        op=_op(plan.scope, wire),
        wire_dtype=_name(wire.dtype),
        wire_bytes=plan.buffer_numel * wire.dtype.itemsize,
        ranks=plan.scope.ranks,
        axes=_axes(plan.scope),
    )


def _op(scope: ReduceScope, wire: WireFormat) -> str:
    if wire.divisor == 1:
        return "sum"
    return "avg" if wire.divisor == len(scope.ranks) else f"sum / {wire.divisor}"


def _axes(scope: ReduceScope) -> tuple[str, ...]:
    names = scope.mesh.mesh_dim_names if scope.mesh else None
    return tuple(names[axis] if names else str(axis) for axis in scope.axes)


def _row(bucket: ExplainedBucket) -> list[str]:
    first, *rest = bucket.parameters
    position = bucket.launch_position
    return [
        str(bucket.index),
        f"{first} and {len(rest)} more" if rest else first,
        bucket.grad_dtype,
        str(bucket.payload_bytes),
        str(bucket.padding_bytes),
        bucket.op or "-",
        bucket.wire_dtype or "-",
        rank_list(bucket.ranks) or "this one",
        ", ".join(bucket.axes) or "-",
        "-" if position is None else str(position),
    ]


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    return "  ".join(padded).rstrip()


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
