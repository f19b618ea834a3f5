"""The tensors that NCCL and gloo take: what torch refuses before, with its own errors.

Note [What NCCL takes]
    NCCL gets a pointer and a number of elements. It knows no strides, so torch looks at the layout of
    a tensor first. A tensor that is contiguous in its memory format, such as `channels_last`, is always
    taken. The two implementations (Note [Names of NCCL]) take other tensors as follows:

    | tensors | `nccl-legacy` | `nccl2` |
    |---|---|---|
    | outputs of `all_gather`, inputs of `reduce_scatter`, of one size | any: torch copies them | none |
    | `send`, `recv` | without gaps and overlaps | none |
    | outputs of `gather`, `scatter`, `reduce_scatter_single`, coalesced forms | no check | none |
    | all others | none | none |

    Without a check, memory without gaps arrives in the order of memory, which may be meant. Memory
    with gaps gives wrong values and no error there; here it raises the error of `nccl2`.

Source:
    torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, `check_gpu_single_tensor` and its callers;
    torch/csrc/distributed/c10d/nccl2/ProcessGroupNCCL.cpp, `ensureTensorContiguous` and its callers;
    the compiled functions of torch 2.14.1 and 2.15.0 call them at the same places.

Note [What gloo takes]
    gloo gets a pointer and a number of elements, as NCCL does, and torch checks less:

    | tensors with gaps | torch with gloo |
    |---|---|
    | `all_reduce`, `broadcast`, `reduce`, `scatter`, outputs of `all_to_all_single` | moves (1) |
    | `send`, `recv`, inputs of `all_to_all_single` | raises an error |
    | all others, and coalesced forms | copies the elements first |

    (1) It moves the memory from the first element on, and raises no error (pytorch#192920). This is
    simulated as it is: such a program has wrong values on gloo, too.

Source:
    torch/csrc/distributed/c10d/ProcessGroupGloo.cpp, `getDataPointer` and `checkSingleTensor`;
    each cell was played on two processes with torch 2.13.
"""

import dataclasses
from enum import IntEnum
from typing import NamedTuple

import torch

from syncverify.sim.network.collectives import CollectiveCall, Tensors, is_dense
from syncverify.sim.turns.refusals import refuse

_NOT_CONTIGUOUS = "Tensors must be contiguous"
_NO_OTHER_TYPE = "Tensors must have identical type"
_MESSAGES = frozenset({"send", "recv"})
_MEMORY_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
# torch sends complex numbers as pairs in these alone; for others its Python functions do it.
_TAKE_COMPLEX = frozenset({"all_reduce", "broadcast", "reduce"})
_KNOWN_DTYPES = frozenset(
    {torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool}
    | {torch.float16, torch.bfloat16, torch.float32, torch.float64}
    | {torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu}
    | {torch.float8_e4m3fnuz, torch.float8_e5m2fnuz}
)
# NCCL moves these as bytes and cannot add them.
_MOVED_ONLY = frozenset(
    {torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu}
)
# The legacy implementation makes them of messages, in torch/csrc/cuda/nccl.cpp.
_SENDS_BY_MESSAGES = frozenset({"all_to_all", "all_to_all_single", "gather", "scatter"})
_SCALED = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
# As torch's C++ names them in its errors.
_CPP_NAMES = {
    torch.int16: "Short",
    torch.complex32: "ComplexHalf",
    torch.complex64: "ComplexFloat",
    torch.complex128: "ComplexDouble",
}


class _Takes(IntEnum):
    """The layouts that a call takes."""

    ANY = 0
    DENSE = 1
    CONTIGUOUS = 2


_ALL_CONTIGUOUS = (_Takes.CONTIGUOUS, _Takes.CONTIGUOUS)
_ALL_DENSE = (_Takes.DENSE, _Takes.DENSE)
# Of the inputs and of the outputs, where it is not `CONTIGUOUS` of both.
_LEGACY_TAKES = {
    "all_gather": (_Takes.CONTIGUOUS, _Takes.ANY),
    "gather": (_Takes.CONTIGUOUS, _Takes.DENSE),
    "scatter": _ALL_DENSE,
    "reduce_scatter": (_Takes.ANY, _Takes.CONTIGUOUS),
    "reduce_scatter_single": _ALL_DENSE,
    "send": _ALL_DENSE,
    "recv": _ALL_DENSE,
}


class Caller(NamedTuple):
    """The rank of a group that issues a call."""

    rank: int
    num_ranks: int
    uses_nccl2: bool  # its group is of the newer implementation


def check_call(call: CollectiveCall, caller: Caller) -> None:
    """Raise the error with which torch refuses a call; Note [What NCCL takes].

    Raises:
        ValueError: A layout, a reduction or a number of elements that NCCL does not take.
        TypeError: A dtype that NCCL does not take, or several.
        RuntimeError: One of these, where torch raises it so.
        NotImplementedError: An operation that this implementation of NCCL has not.
    """
    if call.is_coalesced and call.operation == "all_gather" and not caller.uses_nccl2:
        raise NotImplementedError(
            "ProcessGroupNCCL does not support allgather_coalesced"
        )
    _check_layouts(call, caller)
    _check_dtypes(call, caller)
    _check_reduction(call, caller)
    if not call.is_coalesced and call.operation in _CHECK_SIZES:
        _CHECK_SIZES[call.operation](call, caller)


def _check_layouts(call: CollectiveCall, caller: Caller) -> None:
    takes = _LEGACY_TAKES.get(call.operation, _ALL_CONTIGUOUS)
    if caller.uses_nccl2:
        takes = _ALL_CONTIGUOUS
    elif call.is_coalesced:
        takes = _ALL_DENSE
    for least, tensors in zip(takes, (call.inputs, call.outputs), strict=True):
        for tensor in tensors:
            if not _is_taken(tensor, _of_sizes(least, tensors)):
                raise ValueError(_layout_error(call, caller))


def _of_sizes(least: _Takes, tensors: Tensors) -> _Takes:
    """Return what torch takes of a list: tensors of several sizes are not copied."""
    is_copied = all(each.shape == tensors[0].shape for each in tensors)
    return least if is_copied else max(least, _Takes.DENSE)


def _is_taken(tensor: torch.Tensor, least: _Takes) -> bool:
    if least == _Takes.ANY or tensor.is_contiguous():
        return True
    if least == _Takes.DENSE:
        return is_dense(tensor)
    of_format = _MEMORY_FORMATS.get(tensor.dim())
    return of_format is not None and tensor.is_contiguous(memory_format=of_format)


def _layout_error(call: CollectiveCall, caller: Caller) -> str:
    if caller.uses_nccl2:
        return _NOT_CONTIGUOUS
    if call.operation in _MESSAGES:
        return "Tensors for P2P must be non-overlapping and dense"
    is_of_list = call.is_coalesced and call.operation == "all_reduce"
    return (
        "Tensors must be non-overlapping and dense" if is_of_list else _NOT_CONTIGUOUS
    )


def _check_dtypes(call: CollectiveCall, caller: Caller) -> None:
    tensors = [*call.inputs, *call.outputs]
    for tensor in tensors:
        is_pairs = tensor.is_complex() and call.operation in _TAKE_COMPLEX
        if tensor.dtype not in _KNOWN_DTYPES and not is_pairs:
            raise _unknown_dtype(call.operation, tensor.dtype, caller)
        if tensor.dtype != tensors[0].dtype:
            has_words = not caller.uses_nccl2 and not call.is_coalesced
            words = _LEGACY_TYPE_WORDS.get(call.operation) if has_words else None
            raise TypeError(words or _NO_OTHER_TYPE)


_LEGACY_TYPE_WORDS = {
    "all_gather_single": "output tensor must have the same type as input tensor",
    "reduce_scatter_single": "input tensor must be the same type as the output tensor.",
}


def _unknown_dtype(operation: str, dtype: torch.dtype, caller: Caller) -> Exception:
    if caller.uses_nccl2:
        return RuntimeError("Unsupported tensor data type for NCCL")
    python_name = str(dtype).removeprefix("torch.")
    name = _CPP_NAMES.get(dtype, python_name.replace("uint", "UInt"))
    if operation in _SENDS_BY_MESSAGES:
        return RuntimeError(f"Unconvertible NCCL type {name}")
    return TypeError(
        f"Input tensor data type is not supported for NCCL process group: {name}"
    )


def _check_reduction(call: CollectiveCall, caller: Caller) -> None:
    if not call.reduce_op:
        return
    dtype = call.inputs[0].dtype
    if dtype in _MOVED_ONLY:
        raise RuntimeError("Unsupported Float8 type for NCCL reduction")
    if call.reduce_op in {"BAND", "BOR", "BXOR"}:
        raise ValueError(f"Cannot use ReduceOp.{call.reduce_op} with NCCL")
    if call.reduce_op == "AVG" and dtype == torch.bool:
        raise TypeError("Cannot use ReduceOp.AVG with boolean inputs")
    if call.reduce_op == "PREMUL_SUM" and dtype not in _SCALED:
        error = RuntimeError if caller.uses_nccl2 else TypeError
        raise error("PreMulSum Data type must be half, float, bfloat16 or double")


# Of the newer implementation, and of the legacy one.
_SIZE_WORDS = {
    "all_gather_single": (
        "Output tensor size must be input_size * comm_size for allGatherSingleImpl",
        "output tensor size must be equal to world_size times input tensor size",
    ),
    "reduce_scatter_single": (
        "Input tensor size must be output_size * comm_size for reduceScatterSingleImpl",
        "input tensor must be the same size as output size times world size",
    ),
}


def _check_single(call: CollectiveCall, caller: Caller) -> None:
    whole, part = call.outputs[0], call.inputs[0]
    if call.operation == "reduce_scatter_single":
        whole, part = part, whole
    if whole.numel() != part.numel() * caller.num_ranks:
        newer, legacy = _SIZE_WORDS[call.operation]
        raise RuntimeError(newer) if caller.uses_nccl2 else ValueError(legacy)


def _check_all_gather(call: CollectiveCall, caller: Caller) -> None:
    if len(call.outputs) != caller.num_ranks:
        raise RuntimeError(
            f"Expected {caller.num_ranks} output tensors, got {len(call.outputs)}"
        )
    if call.outputs[caller.rank].numel() != call.inputs[0].numel():
        raise RuntimeError(
            "Input tensor must have the same size as the output tensor for its rank"
        )


def _check_reduce_scatter(call: CollectiveCall, caller: Caller) -> None:
    if len(call.inputs) != caller.num_ranks:
        raise RuntimeError("input_list size must equal comm_size for reduce_scatter")
    if call.inputs[caller.rank].numel() != call.outputs[0].numel():
        raise RuntimeError(
            "Output tensor must have the same size as the input tensor for its rank"
        )


def _check_list_of_root(call: CollectiveCall, caller: Caller) -> None:
    """Check the list of a root, which has a tensor of the size of its other one for each rank."""
    if caller.rank != call.root:
        return
    operation, is_gather = call.operation, call.operation == "gather"
    side, other = ("output", "input") if is_gather else ("input", "output")
    tensors, singles = call.outputs, call.inputs
    if not is_gather:
        tensors, singles = singles, tensors
    one = singles[0]
    of_legacy = f"ProcessGroupNCCL::{operation}: "
    if len(tensors) != caller.num_ranks:
        if caller.uses_nccl2:
            name = f"{side}_tensor_list"
            raise RuntimeError(f"{name} size must equal comm_size for {operation}")
        raise ValueError(
            f"{of_legacy}Incorrect {side} list size {len(tensors)}. {side.capitalize()} list "
            f"size should be {caller.num_ranks}, same as size of the process group."
        )
    for index, tensor in enumerate(tensors):
        if caller.uses_nccl2 and tensor.numel() != one.numel():
            raise RuntimeError(
                f"All {side} tensors must have same size as {other} tensor"
            )
        if not caller.uses_nccl2 and tensor.shape != one.shape:
            raise ValueError(
                f"{of_legacy}invalid tensor size at index {index} (expected "
                f"({_sizes(one)}), got ({_sizes(tensor)}))"
            )


def _sizes(tensor: torch.Tensor) -> str:
    return ", ".join(map(str, tensor.shape))


def _check_all_to_all(call: CollectiveCall, caller: Caller) -> None:
    if not len(call.inputs) == len(call.outputs) == caller.num_ranks:
        raise RuntimeError("Tensor list sizes must equal comm_size for all_to_all")


_CHECK_SIZES = {
    "all_gather": _check_all_gather,
    "all_gather_single": _check_single,
    "all_to_all": _check_all_to_all,
    "gather": _check_list_of_root,
    "reduce_scatter": _check_reduce_scatter,
    "reduce_scatter_single": _check_single,
    "scatter": _check_list_of_root,
}


_MOVES_MEMORY = frozenset({"all_reduce", "broadcast", "reduce", "scatter"})


def as_moved_by_gloo(call: CollectiveCall) -> CollectiveCall:
    """Return a call with the memory that gloo moves in the place of its tensors.

    Raises:
        RuntimeError: A message whose tensor is not contiguous.
        ValueError: An input of `all_to_all_single` that is not contiguous.
    """
    tensors = (*call.inputs, *call.outputs)
    if all(
        each.layout is not torch.strided or each.is_contiguous() for each in tensors
    ):
        return call
    match call.operation:
        case "send" | "recv":
            raise RuntimeError("input tensor has to be contiguous")
        case "all_to_all_single":
            if not all(each.is_contiguous() for each in call.inputs):
                raise ValueError(_NOT_CONTIGUOUS)
            return dataclasses.replace(call, outputs=_memory_of(call.outputs))
        case operation if operation in _MOVES_MEMORY and not call.is_coalesced:
            inputs, outputs = _memory_of(call.inputs), _memory_of(call.outputs)
            return dataclasses.replace(call, inputs=inputs, outputs=outputs)
    return call


def _memory_of(tensors: Tensors) -> Tensors:
    """View the memory from the first element on; a tensor without gaps is its own memory."""
    return [each if is_dense(each) else _contiguous_view(each) for each in tensors]


def _contiguous_view(tensor: torch.Tensor) -> torch.Tensor:
    first = int(tensor.storage_offset())
    num_elements = tensor.untyped_storage().nbytes() // tensor.itemsize
    if first + tensor.numel() > num_elements:
        refuse("a tensor for which gloo moves more memory than its storage has")
    plain = tensor.detach()
    return plain.as_strided(
        plain.shape, torch.empty(plain.shape, device="meta").stride()
    )
