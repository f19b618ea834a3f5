"""The memory effects of an operator, as its schema states them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from syncverify.sim.device.torch_internals import schema_arguments

# Operators that write all of `self` and read nothing of `self`.
_OVERWRITE = frozenset(
    {
        "_foreach_copy_",
        "_foreach_zero_",
        "copy_",
        "fill_",
        "normal_",
        "uniform_",
        "zero_",
    }
)
# Operators that overwrite an argument, by its position, though their schema does not say so: FSDP2
# copies the shards of a rank into the memory of the all-gather.
_UNDECLARED = frozenset({("all_gather_copy_in", 1)})
# Prefixes of operators that allocate and leave the memory as it is.
_ALLOCATE = ("empty", "new_empty")
# Prefixes of operators that use only the shape and dtype of their arguments.
_LIKE = ("empty", "full", "new_", "ones", "rand", "zeros")
# Operators for which the host waits on CUDA: the host needs the values of the current
# stream, or their number.
_HOST_SYNCS = frozenset(
    {
        "_local_scalar_dense",
        "_unique2",
        "equal",
        "masked_select",
        "nonzero",
        "unique_consecutive",
        "unique_dim",
    }
)
# Operators that touch no memory, though their schema shows no alias.
_METADATA_ONLY = frozenset(
    {"_unsafe_view", "_wrap_tensor_autograd", "is_same_size", "wait_tensor"}
)
# Libraries whose operators are collectives: process groups record those themselves.
_COLLECTIVES = frozenset({"c10d", "_c10d_functional"})


@dataclass(frozen=True, slots=True)
class Effects:
    """The memory effects of one operator.

    Attributes:
        name: Name of the operator, as in the trace.
        reads: Position and name of arguments that are read.
        writes: Position and name of arguments that are written.
        fills: Whether the operator also writes its new results.
        waits_on_host: Whether the host waits for the current stream.
    """

    name: str
    reads: tuple[tuple[int, str], ...]
    writes: tuple[tuple[int, str], ...]
    fills: bool
    waits_on_host: bool


@functools.cache  # operators are few, and live as long as the process
def effects_of(operator: Any) -> Effects | None:
    """Return the memory effects of a `torch._ops.OpOverload`.

    None for an operator on metadata alone, such as a view. None for a collective, which its
    process group records.
    """
    name = operator.overloadpacket.__name__
    if _is_metadata_only(operator, name) or _is_recorded_by_groups(operator, name):
        return None
    tensors = [
        (index, argument)
        for index, argument in enumerate(schema_arguments(operator))
        if "Tensor" in str(argument.type)
    ]
    reads, writes = [], []
    for index, argument in tensors:
        place = (index, argument.name)
        is_undeclared = (name, index) in _UNDECLARED
        is_declared = argument.alias_info is not None and argument.alias_info.is_write
        if is_declared or is_undeclared:
            writes.append(place)
        overwrites = is_declared and (argument.is_out or name in _OVERWRITE)
        if not (overwrites or is_undeclared):
            reads.append(place)
    if name.startswith(_LIKE):
        reads = []
    return Effects(
        str(operator),
        tuple(reads),
        tuple(writes),
        fills=not name.startswith(_ALLOCATE),
        waits_on_host=name in _HOST_SYNCS,
    )


def needs_no_value(effects: Effects, tensors: Sequence[torch.Tensor]) -> bool:
    """Tell whether an operator for which the host waits returns without a value of its tensors.

    Without an element there is no value. `equal` of tensors that differ in shape, or that are
    the same memory, compares nothing.

    Args:
        effects: Effects of the operator.
        tensors: Tensors that the operator reads.

    Returns:
        Whether it does.

    Source:
        `cuda_equal` in ATen/native/cuda/Equal.cpp; `unique_cuda_template` in Unique.cu.
    """
    if not all(tensor.numel() for tensor in tensors):
        return True
    if not effects.name.startswith("aten.equal."):
        return False
    first, second = tensors
    return first.shape != second.shape or _is_same_memory(first, second)


def _is_same_memory(first: torch.Tensor, second: torch.Tensor) -> bool:
    if first is second:
        return True
    if not all(_is_plain(each) for each in (first, second)):
        return False
    return first.dtype == second.dtype and first.is_set_to(second)


def _is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor and tensor.layout is torch.strided


def _is_metadata_only(operator: Any, name: str) -> bool:
    is_view = operator.is_view or torch.Tag.inplace_view in operator.tags
    return is_view or name in _METADATA_ONLY


def _is_recorded_by_groups(operator: Any, name: str) -> bool:
    # Functional collectives copy their input first, and no process group sees the copy.
    copies = operator.namespace == "_c10d_functional" and not name.endswith("_")
    return operator.namespace in _COLLECTIVES and not copies


def tensors_at(
    places: tuple[tuple[int, str], ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
) -> list[torch.Tensor]:
    """List the tensors among the arguments at `places`, tensors in lists included.

    Args:
        places: Position and name of each argument.
        args: Positional arguments of the operator.
        kwargs: Its keyword arguments.

    Returns:
        The tensors, in the order of `places`.
    """
    found: list[torch.Tensor] = []
    for index, name in places:
        if index < len(args):
            given = args[index]
        else:
            given = kwargs.get(name) if kwargs else None
        if isinstance(given, torch.Tensor):
            found.append(given)
        elif isinstance(given, (list, tuple)):
            found += [entry for entry in given if entry is not None]
    return found
