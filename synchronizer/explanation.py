"""What a synchronizer is going to do, as a table, before it does it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from typing_extensions import override

from .config import SynchronizerConfig
from .grouping import BucketPlan
from .per_axis import goes_axis_by_axis
from .scope import ReduceScope, spanned_ranks
from .wire import WireFormat

_HEADER = (
    "bucket",
    "parameters",
    "dtype",
    "bytes",
    "padding",
    "op",
    "wire",
    "ranks",
    "axes",
    "check",
    "launch",
)
_CHECKSUM_BYTES = 8


@dataclass(frozen=True, slots=True)
class ExplainedCollective:
    """One collective of every step.

    Attributes:
        operation: torch's name of it.
        moved_bytes: What each rank contributes.
        dtype: Of what is moved.
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
            f" {_listed(self.ranks)}"
        )


@dataclass(frozen=True, slots=True)
class ExplainedBucket:
    """One bucket of a plan.

    Attributes:
        index: As in messages.
        parameters: Names, in the order of the buffer.
        grad_dtype: In which gradients are accumulated.
        device: Where the buffer lives.
        payload_bytes: Of this rank's local gradients.
        padding_bytes: Between and after them; always zero, but reduced as well.
        op: "sum", "avg", or "sum / n" where only some of the axes are averaged; empty where
            the bucket stays local.
        wire_dtype: In which gradients are sent and summed; empty where they stay.
        wire_bytes: Of what is summed, padding included; 0 where they stay.
        ranks: Global ranks that sum the bucket; empty where it stays local.
        axes: The mesh axes that span them, by name or else by index.
        launch_position: Among this rank's buckets; None where there is nothing to
            communicate.
        phases: The global ranks of each of its reductions, in turn: all `ranks` at
            once, or those of one axis after the other, see Note [Axis by axis].
        num_shards: Into how many parts, owned by one rank each, it is reduced; 1 where
            every rank gets all of it.
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
    checked_ranks: tuple[int, ...]
    launch_position: int | None
    phases: tuple[tuple[int, ...], ...]
    num_shards: int = 1

    @property
    def at_launch(self) -> tuple[ExplainedCollective, ...]:
        """What is launched for it from within backward, in order."""
        found = []
        if self.checked_ranks:
            checksums_bytes = _CHECKSUM_BYTES * len(self.parameters)
            found.append(
                ExplainedCollective(
                    "all_gather", checksums_bytes, "int64", self.checked_ranks
                )
            )
        return (*found, *self._reductions()[:1])

    @property
    def in_wait(self) -> tuple[ExplainedCollective, ...]:
        """What is launched for it by `wait()`, in order."""
        return self._reductions()[1:]

    def _reductions(self) -> tuple[ExplainedCollective, ...]:
        operation = "reduce_scatter" if self.num_shards > 1 else "all_reduce"
        return tuple(
            ExplainedCollective(operation, self.wire_bytes, self.wire_dtype, ranks)
            for ranks in self.phases
        )


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
    def of(
        cls,
        plans: Iterable[BucketPlan],
        config: SynchronizerConfig,
        *,
        is_rebuilt: bool = False,
    ) -> Self:
        """Describe a plan.

        Args:
            plans: In launch order.
            config: How buckets are reduced.
            is_rebuilt: Whether they replaced the first plan.

        Returns:
            The same in words and numbers.
        """
        buckets: list[ExplainedBucket] = []
        num_launches = 0
        for plan in plans:
            is_launched = plan.scope is not None or plan.check is not None
            buckets.append(
                _explain(plan, config, num_launches if is_launched else None)
            )
            num_launches += is_launched
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
        in the order of the plan, and the reductions before to be over by then.
        """
        launched = [b for b in self.buckets if b.launch_position is not None]
        exposed = [*(launched[-1].at_launch if launched else ()), *self._in_wait()]
        return sum(collective.moved_bytes for collective in exposed)

    def _during_backward(self) -> list[ExplainedCollective]:
        return [each for bucket in self.buckets for each in bucket.at_launch]

    def _in_wait(self) -> list[ExplainedCollective]:
        return [each for bucket in self.buckets for each in bucket.in_wait]

    @override
    def __str__(self) -> str:
        payload_bytes = sum(bucket.payload_bytes for bucket in self.buckets)
        padding_bytes = sum(bucket.padding_bytes for bucket in self.buckets)
        rows = [_HEADER, *(_row(bucket) for bucket in self.buckets)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [_aligned(row, widths) for row in rows]
        num_checks = sum(bool(bucket.checked_ranks) for bucket in self.buckets)
        checks = f" and {_counted(num_checks, 'check')}" if num_checks else ""
        num_reductions = len(self.collectives) - num_checks
        lines.append(
            f"{_counted(num_reductions, 'reduction')}{checks} a step, of"
            f" {_counted(len(self.buckets), 'bucket')}; {payload_bytes} bytes and"
            f" {padding_bytes} of"
            f" padding; exposed tail {self.exposed_tail_bytes} bytes"
            + "; rebuilt in the order in which gradients were ready"
            * self.is_rebuilt
        )
        return "\n".join(lines)


def _explain(
    plan: BucketPlan, config: SynchronizerConfig, launch_position: int | None
) -> ExplainedBucket:
    itemsize = plan.key.grad_dtype.itemsize
    payload_numel = sum(member.local_numel for member in plan.members)
    return ExplainedBucket(
        plan.index,
        tuple(member.name for member in plan.members),
        _name(plan.key.grad_dtype),
        str(plan.key.device),
        payload_bytes=payload_numel * itemsize,
        padding_bytes=(plan.buffer_numel - payload_numel) * itemsize,
        op=_op(plan.scope, plan.key.wire) if plan.scope else "",
        wire_dtype=_name(plan.key.wire.dtype) if plan.scope else "",
        wire_bytes=plan.buffer_numel * plan.key.wire.dtype.itemsize
        if plan.scope
        else 0,
        ranks=plan.scope.ranks if plan.scope else (),
        axes=_axes(plan.scope) if plan.scope else (),
        checked_ranks=plan.check.ranks if plan.check else (),
        launch_position=launch_position,
        phases=_phases(plan, config),
        num_shards=plan.num_shards,
    )


def _op(scope: ReduceScope, wire: WireFormat) -> str:
    if wire.divisor == 1:
        return "sum"
    return "avg" if wire.divisor == len(scope.ranks) else f"sum / {wire.divisor}"


def _phases(
    plan: BucketPlan, config: SynchronizerConfig
) -> tuple[tuple[int, ...], ...]:
    scope = plan.scope
    if scope is None:
        return ()
    if scope.mesh is None or not goes_axis_by_axis(plan, config):
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
        bucket.op or "-",
        bucket.wire_dtype or "-",
        _listed(bucket.ranks) or "this one",
        ", ".join(bucket.axes) or "-",
        _listed(bucket.checked_ranks) or "-",
        "-" if position is None else str(position),
    )


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    return "  ".join(padded).rstrip()


def _listed(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, ranks))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
