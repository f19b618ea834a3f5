"""Record the collectives of real process groups, which are left untouched.

A real process group sends every collective through torch's dispatcher, so a dispatch
mode sees them all, those of C++ code (the reducer of DistributedDataParallel) included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from syncverify.recorder import Recorder
from syncverify.sourcelines import calling_line
from syncverify.trace import POINT_TO_POINT

# Operators of the `c10d` and `_c10d_functional` libraries: what the trace calls them, and
# which argument holds what this rank contributes, where the first one does not.
_OPERATIONS = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "reduce_": "reduce",
    "broadcast_": "broadcast",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather_single",
    "allgather_into_tensor_coalesced_": "all_gather_single",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter_single",
    "gather_": "gather",
    "scatter_": "scatter",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all_single",
    "allgather_coalesced_": "all_gather",
    "barrier": "barrier",
    "send": "send",
    "recv_": "recv",
}
_ROOTED_OPERATIONS = frozenset({"reduce", "broadcast", "gather", "scatter"})
_OUTPUTS_COME_FIRST = frozenset(
    {
        "allgather_",
        "_allgather_base_",
        "allgather_into_tensor_coalesced_",
        "reduce_scatter_",
        "_reduce_scatter_base_",
        "reduce_scatter_tensor_coalesced_",
        "gather_",
        "scatter_",
        "alltoall_",
        "alltoall_base_",
        "allgather_coalesced_",
    }
)
_FUNCTIONAL_OPERATIONS = {
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "all_reduce_coalesced_": "all_reduce",
    "all_gather_into_tensor": "all_gather_single",
    "all_gather_into_tensor_out": "all_gather_single",
    "all_gather_into_tensor_coalesced": "all_gather_single",
    "reduce_scatter_tensor": "reduce_scatter_single",
    "reduce_scatter_tensor_out": "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_single",
    "broadcast": "broadcast",
    "broadcast_": "broadcast",
    "all_to_all_single": "all_to_all_single",
}


class CollectiveRecording(TorchDispatchMode):
    """Records the collectives that this rank issues while the mode is on.

    Args:
        recorder: Receives them.
    """

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch
        self._recorder = recorder

    @override
    def __torch_dispatch__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Record a collective, then run it."""
        if any(issubclass(t, DTensor) for t in types):
            return (
                NotImplemented  # DTensor unwraps itself; its local operators come next
            )
        if func.namespace == "c10d":
            self._record(func, args, _OPERATIONS, _group_of_box)
        elif func.namespace == "_c10d_functional":
            self._record(func, args, _FUNCTIONAL_OPERATIONS, _group_of_name)
        return func(*args, **(kwargs or {}))

    def _record(
        self,
        func: Any,
        args: tuple[Any, ...],
        names: dict[str, str],
        group_of: Callable[[tuple[Any, ...]], dist.ProcessGroup],
    ) -> None:
        operator = func.overloadpacket.__name__
        operation = names.get(operator)
        if operation is None:
            return
        group = group_of(args)
        ranks = tuple(dist.get_process_group_ranks(group))
        named = _named_rank(args)
        self._recorder.launch(
            operation,
            _contribution(operator, args),
            ranks=_ends(operation, ranks[group.rank()], ranks[named])
            if operation in POINT_TO_POINT
            else ranks,
            reduce_op=next((name for name in map(_reduce_op, args) if name), ""),
            source=calling_line(),
            communicator=group.group_name,
            root=ranks[named] if operation in _ROOTED_OPERATIONS else None,
        )


def _contribution(operator: str, args: tuple[Any, ...]) -> list[torch.Tensor]:
    if operator == "barrier":
        return []  # torch passes a tensor that means nothing
    if operator in _OUTPUTS_COME_FIRST:  # a rank that is not the root may give nothing
        return _tensors(args[1]) or _tensors(args[0])
    return _tensors(args[0])


def _named_rank(args: tuple[Any, ...]) -> int:
    """Return the group rank that a call names: its first whole number, if it has any."""
    return next((a for a in args if type(a) is int), 0)


def _ends(operation: str, own: int, other: int) -> tuple[int, int]:
    return (own, other) if operation == "send" else (other, own)


def _tensors(argument: Any) -> list[torch.Tensor]:
    if isinstance(argument, torch.Tensor):
        return [argument]
    return [tensor for entry in argument for tensor in _tensors(entry)]


def _group_of_box(args: tuple[Any, ...]) -> dist.ProcessGroup:
    box = next(
        a
        for a in args
        if isinstance(a, torch.ScriptObject) and "ProcessGroup" in str(a)
    )
    return dist.ProcessGroup.unbox(box)


def _group_of_name(args: tuple[Any, ...]) -> dist.ProcessGroup:
    # What the operators themselves call.
    return dist.distributed_c10d._resolve_process_group(args[-1])  # noqa: SLF001


def _reduce_op(argument: Any) -> str:
    names: Mapping[str, Any] = dist.ReduceOp.RedOpType.__members__
    if isinstance(argument, str) and argument.upper() in names:
        return argument.upper()
    if isinstance(argument, torch.ScriptObject) and "ReduceOp" in str(argument):
        number = argument.op()  # type: ignore[attr-defined]  # a method of the boxed class
        return next((name for name, value in names.items() if int(value) == number), "")
    return ""
