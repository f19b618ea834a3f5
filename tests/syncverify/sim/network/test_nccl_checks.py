"""Calls that torch refuses before NCCL, by both implementations of NCCL."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from syncverify.faces.simulation.simulate import simulate
from syncverify.sim.network.collectives import CollectiveCall
from syncverify.sim.network.library_checks import Caller, check_call

WHOLE = torch.ones(8)
PLAIN = WHOLE[:4]
STRIDED = WHOLE[::2]
STRETCHED = torch.ones(1).expand(4)
TRANSPOSED = torch.ones(2, 2).t()
COLUMNS = list(torch.ones(4, 2).unbind(1))
IMAGES = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)
CONTIGUOUS = "ValueError: Tensors must be contiguous"
DENSE_MESSAGE = "ValueError: Tensors for P2P must be non-overlapping and dense"
DENSE_LIST = "ValueError: Tensors must be non-overlapping and dense"


def call(
    operation: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor] | None = None,
    reduce_op: str = "", *, is_coalesced: bool = False,
) -> CollectiveCall:  # fmt: skip
    given = inputs if outputs is None else outputs
    return CollectiveCall(
        operation, reduce_op, inputs, given, root=0, is_coalesced=is_coalesced
    )


def error_of(issued: CollectiveCall, *, uses_nccl2: bool) -> str:
    """Return type and words of the error on rank 0 of 2; nothing for a call that is taken."""
    try:
        check_call(issued, Caller(0, 2, uses_nccl2))
    except Exception as error:  # noqa: BLE001  # the test compares it
        return f"{type(error).__name__}: {error}"
    return ""


# Of each call: the errors of `nccl-legacy` and of `nccl2`.
LAYOUTS = {
    "all_reduce": (call("all_reduce", [STRIDED], reduce_op="SUM"), CONTIGUOUS, CONTIGUOUS),
    "channels_last": (call("all_reduce", [IMAGES], reduce_op="SUM"), "", ""),
    "all_gather of": (call("all_gather", [STRIDED], [PLAIN, PLAIN]), CONTIGUOUS, CONTIGUOUS),
    "all_gather into columns": (call("all_gather", [PLAIN], COLUMNS), "", CONTIGUOUS),
    "all_gather_single of several": (
        call("all_gather_single", [TRANSPOSED], [WHOLE], is_coalesced=True), "", CONTIGUOUS),
    "reduce_scatter of columns": (call("reduce_scatter", COLUMNS, [PLAIN], "SUM"), "",
        CONTIGUOUS),
    "gather into": (call("gather", [PLAIN], COLUMNS), CONTIGUOUS, CONTIGUOUS),
    "send": (call("send", [STRETCHED], []), DENSE_MESSAGE, CONTIGUOUS),
    "recv": (call("recv", [], [STRIDED]), DENSE_MESSAGE, CONTIGUOUS),
    "all_reduce of several": (
        call("all_reduce", [PLAIN, STRIDED], None, "SUM", is_coalesced=True), DENSE_LIST,
        CONTIGUOUS),
    "nothing": (call("broadcast", [torch.ones(0, 3).t()]), "", ""),
}  # fmt: skip


def summed(dtype: torch.dtype, reduce_op: str = "SUM") -> CollectiveCall:
    return call("all_reduce", [torch.ones(2).to(dtype)], reduce_op=reduce_op)


NO_BITS = "ValueError: Cannot use ReduceOp.BAND with NCCL"
NO_BOOL = "TypeError: Cannot use ReduceOp.AVG with boolean inputs"
NO_FLOAT8 = "RuntimeError: Unsupported Float8 type for NCCL reduction"
NO_FACTOR = "Error: PreMulSum Data type must be half, float, bfloat16 or double"
OF_LEGACY = (
    "TypeError: Input tensor data type is not supported for NCCL process group: "
)
OF_NCCL2 = "RuntimeError: Unsupported tensor data type for NCCL"
PAIRS = [torch.ones(2, dtype=torch.complex64)]
DTYPES = {
    "bits": (summed(torch.int32, "BAND"), NO_BITS, NO_BITS),
    "AVG of bool": (summed(torch.bool, "AVG"), NO_BOOL, NO_BOOL),
    "PREMUL_SUM of int": (summed(torch.int32, "PREMUL_SUM"), f"Type{NO_FACTOR}",
        f"Runtime{NO_FACTOR}"),
    "float8": (summed(torch.float8_e5m2), "", ""),
    "float8 fnuz": (summed(torch.float8_e5m2fnuz), NO_FLOAT8, NO_FLOAT8),
    "int16": (summed(torch.int16), f"{OF_LEGACY}Short", OF_NCCL2),
    "complex, gathered": (call("gather", PAIRS, [*PAIRS, *PAIRS]),
        "RuntimeError: Unconvertible NCCL type ComplexFloat", OF_NCCL2),
    "two dtypes": (call("all_gather_single", [PLAIN], [WHOLE.double()]),
        "TypeError: output tensor must have the same type as input tensor",
        "TypeError: Tensors must have identical type"),
    "a list of two dtypes": (
        call("all_reduce", [PLAIN, PLAIN.double()], None, "SUM", is_coalesced=True),
        *["TypeError: Tensors must have identical type"] * 2),
}  # fmt: skip


LIST_SIZE = "list size should be 2, same as size of the process group."
INPUT_SIZE = (
    "Input tensor size must be output_size * comm_size for reduceScatterSingleImpl"
)
SIZES = {
    "all_gather_single": (
        call("all_gather_single", [PLAIN], [PLAIN]),
        "ValueError: output tensor size must be equal to world_size times input tensor size",
        "RuntimeError: Output tensor size must be input_size * comm_size for allGatherSingleImpl",
    ),
    "reduce_scatter_single": (call("reduce_scatter_single", [PLAIN], [PLAIN], "SUM"),
        "ValueError: input tensor must be the same size as output size times world size",
        f"RuntimeError: {INPUT_SIZE}"),
    "all_gather": (call("all_gather", [PLAIN], [PLAIN]),
        *["RuntimeError: Expected 2 output tensors, got 1"] * 2),
    "all_gather of another size": (
        call("all_gather", [PLAIN], [WHOLE, WHOLE]),
        *["RuntimeError: Input tensor must have the same size as the output tensor for its rank"]
        * 2,
    ),
    "gather": (
        call("gather", [PLAIN], [PLAIN]),
        f"ValueError: ProcessGroupNCCL::gather: Incorrect output list size 1. Output {LIST_SIZE}",
        "RuntimeError: output_tensor_list size must equal comm_size for gather",
    ),
    "all_gather of two sizes": (call("all_gather", [PLAIN], [PLAIN, WHOLE]), "", ""),
    "several of all_gather": (
        call("all_gather", [PLAIN, WHOLE], [PLAIN, WHOLE] * 2, is_coalesced=True),
        "NotImplementedError: ProcessGroupNCCL does not support allgather_coalesced", ""),
}  # fmt: skip


@pytest.mark.parametrize(
    ("issued", "of_legacy", "of_nccl2"),
    [*LAYOUTS.values(), *DTYPES.values(), *SIZES.values()],
    ids=[*LAYOUTS, *DTYPES, *SIZES],
)
def test_calls_that_torch_refuses(
    issued: CollectiveCall, of_legacy: str, of_nccl2: str
) -> None:
    assert error_of(issued, uses_nccl2=False) == of_legacy
    assert error_of(issued, uses_nccl2=True) == of_nccl2


def test_a_rank_that_is_no_root_has_no_list() -> None:
    for issued in (call("gather", [PLAIN], []), call("scatter", [], [PLAIN])):
        check_call(issued, Caller(1, 2, uses_nccl2=False))


def on_gpu(*sizes: int) -> torch.Tensor:
    return torch.ones(*sizes, device="cuda")


def strided() -> None:
    dist.broadcast(on_gpu(8)[::2], 0)


def parts_of_one_element() -> None:
    """The parts of a strided tensor are contiguous; the tensor is not."""
    dist.all_to_all_single(on_gpu(2), on_gpu(4)[::2])


def tensor_of_no_rank() -> None:
    dist.group.WORLD.allreduce_coalesced([])


def odd_split() -> None:
    dist.all_to_all_single(on_gpu(3), on_gpu(3))


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (parts_of_one_element, "rank 0 raised ValueError: Tensors must be contiguous"),
        (
            tensor_of_no_rank,
            "rank 0 raised NotImplementedError: There were no tensor arguments"),
        (odd_split, "rank 0 raised RuntimeError: Tensor's dim 0 does not divide equally"),
    ],
)  # fmt: skip
def test_a_program_gets_the_error_of_torch(
    program: Callable[[], None], words: str
) -> None:
    (found,) = simulate(program, ranks=2).violations
    assert found.violation.property == "every_rank_finishes"
    assert found.violation.summary.startswith(words)


def made_contiguous() -> list[torch.Tensor]:
    """Functional collectives copy what is not contiguous; objects travel as bytes."""
    world = dist.group.WORLD
    parts = on_gpu(8)[::2]
    objects = [None] * 2
    dist.all_gather_object(objects, "value")
    found = (
        functional.all_reduce(on_gpu(4, 2).t(), "sum", world),
        functional.all_gather_single(parts, 0, world),
        functional.reduce_scatter_single(parts, "sum", 0, world),
        functional.all_to_all_single(parts, None, None, world),
    )
    return [functional.wait_tensor(each) for each in found]


def sums_of_float8() -> torch.Tensor:
    summed = torch.full((2,), 1.5, device="cuda").to(torch.float8_e4m3fn)
    dist.all_reduce(summed)
    return summed.float()


def test_right_programs_are_silent() -> None:
    assert not simulate(made_contiguous, ranks=2).violations
    played = simulate(sums_of_float8, ranks=2)
    assert not played.violations
    assert played.results[0].tolist() == [3.0, 3.0]


def of_two_libraries() -> None:
    dist.init_process_group("cpu:gloo,cuda:nccl")
    dist.all_reduce(torch.ones(2, dtype=torch.int32), dist.ReduceOp.BAND)
    dist.all_reduce(on_gpu(2).int(), dist.ReduceOp.BAND)


def test_memory_of_the_host_goes_to_another_library() -> None:
    (found,) = simulate(of_two_libraries, ranks=2).violations
    assert "Cannot use ReduceOp.BAND with NCCL" in found.violation.summary
    assert "dist.ReduceOp.BAND" in str(found)
    assert "on_gpu(2).int()" in str(found)
