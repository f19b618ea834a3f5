"""The record of collectives of real process groups, which stay unchanged.

A real process group sends every collective through torch's dispatcher, also one that C++
code issues (the reducer of DistributedDataParallel). So a dispatch mode sees all of them.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from typing_extensions import override

from syncverify.sim.device.torch_internals import keep_from_compilers
from syncverify.trace.dispatch_modes import EagerMode
from syncverify.trace.operations import POINT_TO_POINT
from syncverify.trace.recorder import Recorder

# Operators of the `c10d` library, and the names of their operations in the trace. The
# contribution of this rank is the second argument here, and the first one below.
_OUTPUTS_COME_FIRST = {
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
}
_OPERATIONS = _OUTPUTS_COME_FIRST | {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "reduce_": "reduce",
    "broadcast_": "broadcast",
    "barrier": "barrier",
    "send": "send",
    "recv_": "recv",
}
_ROOTED_OPERATIONS = frozenset({"reduce", "broadcast", "gather", "scatter"})
# Names of collectives by operator of the functional library, each with its variants.
_FUNCTIONAL_OPERATIONS = {
    f"{operator}{variant}": operation
    for operator, operation in {
        "all_reduce": "all_reduce",
        "all_gather_into_tensor": "all_gather_single",
        "reduce_scatter_tensor": "reduce_scatter_single",
        "broadcast": "broadcast",
        "all_to_all_single": "all_to_all_single",
    }.items()
    for variant in ("", "_", "_out", "_coalesced", "_coalesced_")
}
_LIBRARIES = {"c10d": _OPERATIONS, "_c10d_functional": _FUNCTIONAL_OPERATIONS}


class CollectiveRecording(EagerMode):
    """Gives the collectives that this rank issues while the mode is on to a recorder."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        for package in (__name__, "syncverify.trace"):
            keep_from_compilers(package)

    @override
    def __torch_dispatch__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Record a collective, then run it."""
        # Plain tensors come without types, and then there is nothing to look at.
        if types and (DTensor in types or any(issubclass(t, DTensor) for t in types)):
            # DTensor then unwraps itself, and its local operators come here next.
            return NotImplemented
        if (names := _LIBRARIES.get(func.namespace)) is not None:
            operator = func.overloadpacket.__name__
            if operator in names:
                self._record(operator, names[operator], args)
        return func(*args, **(kwargs or {}))

    def _record(self, operator: str, operation: str, args: tuple[Any, ...]) -> None:
        group = _group_of(args)
        ranks = tuple(dist.get_process_group_ranks(group))
        # An operation with a root or one peer names it by the first integer, a group rank.
        named = next((a for a in args if type(a) is int), 0)
        root = ranks[named] if operation in _ROOTED_OPERATIONS else None
        if operation in POINT_TO_POINT:
            ends = ranks[group.rank()], ranks[named]
            ranks = ends if operation == "send" else ends[::-1]
        self._recorder.launch(
            operation,
            _contribution(operator, args),
            ranks=ranks,
            reduce_op=next((name for name in map(_reduce_op, args) if name), ""),
            communicator=group.group_name,
            root=root,
        )


def _contribution(operator: str, args: tuple[Any, ...]) -> list[torch.Tensor]:
    if operator == "barrier":
        return []  # torch passes a tensor without a meaning
    if operator in _OUTPUTS_COME_FIRST:
        # A rank that is not the root may contribute no tensor.
        return _tensors(args[1]) or _tensors(args[0])
    return _tensors(args[0])


def _tensors(argument: Any) -> list[torch.Tensor]:
    if isinstance(argument, torch.Tensor):
        return [argument]
    return [tensor for entry in argument for tensor in _tensors(entry)]


def _group_of(args: tuple[Any, ...]) -> dist.ProcessGroup:
    for each in args:
        if isinstance(each, torch.ScriptObject) and "ProcessGroup" in str(each):
            return dist.ProcessGroup.unbox(each)
    # The functional operators, which take a name, call the same function.
    return dist.distributed_c10d._resolve_process_group(args[-1])  # noqa: SLF001


def _reduce_op(argument: Any) -> str:
    names: Mapping[str, Any] = dist.ReduceOp.RedOpType.__members__
    if isinstance(argument, str) and argument.upper() in names:
        return argument.upper()
    if isinstance(argument, torch.ScriptObject) and "ReduceOp" in str(argument):
        number = argument.op()  # type: ignore[attr-defined]  # a method of the boxed class
        return next((name for name, value in names.items() if int(value) == number), "")
    return ""
