"""Private names of torch that the simulated machine needs, behind names of our own.

The only module of the harness that touches `torch._C`. Private parts of DTensor are in
`sharding_plans.py` and `parts.py`, torch's testing machinery is in `threaded_world.py`.
"""

import functools
import importlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch._C._autograd import _get_sequence_nr

# torch's stub leaves this one out.
from torch._C._distributed_c10d import (  # type: ignore[attr-defined]
    _set_thread_isolation_mode,
)
from torch.distributed import _symmetric_memory
from torch.distributed.tensor import DTensor
from torch.utils._device import DeviceContext

# Owners and names of functions that Python code of torch looks up at each call.
SYMMETRIC_MEMORY = (
    (_symmetric_memory, "empty"),
    (_symmetric_memory, "rendezvous"),
    (_symmetric_memory, "enable_symm_mem_for_group"),
    (_symmetric_memory, "get_symm_mem_workspace"),
)
# `torch.futures.collect_all` and `wait_all` call it.
COLLECT_ALL = torch._C, "_collect_all"  # noqa: SLF001
# DistributedDataParallel calls it when it registers a hook.
REGISTER_COMM_HOOK = dist, "_register_comm_hook"
# With it, DistributedDataParallel sums a bucket before it calls optimizers in backward.
RUN_ALLREDUCE_HOOK = dist.Reducer, "_run_allreduce_hook"
# Meshes and functional collectives look up a group by these.
RESOLVE_GROUP = dist.device_mesh, "_resolve_process_group"
RESOLVE_GROUP_BY_NAME = dist.distributed_c10d, "_resolve_process_group"
# Reads the arguments of `Module.to`.
PARSE_TO = torch._C._nn, "_parse_to"  # noqa: SLF001
# Optimizers and clipping group tensors by it.
GROUP_TENSORS = torch._C, "_group_tensors_by_device_and_dtype"  # noqa: SLF001
# The zip file of `torch.save`, and the function by which tensors print.
FILE_WRITER = torch._C.PyTorchFileWriter  # noqa: SLF001
PRINT = torch._tensor_str, "_str"  # noqa: SLF001
# `new_group` and the functions that make groups by it end in this one.
NEW_GROUP = dist.distributed_c10d, "_new_group_with_tag"
# Hides the process groups of one thread from functional collectives of another.
isolate_threads = _set_thread_isolation_mode
# Returns the number of the next autograd node that this thread makes.
next_sequence_number = _get_sequence_nr
# Calls a function after the last node of the running backward pass.
queue_final_callback: Callable[[Callable[[], None]], None] = (
    torch.autograd.Variable._execution_engine.queue_callback  # noqa: SLF001
)
# Keeps classes of tensors from taking over functions within a block.
as_plain_tensors: Callable[[], AbstractContextManager[None]] = (
    torch._C.DisableTorchFunctionSubclass  # noqa: SLF001
)
Operator = torch._ops.OpOverload  # noqa: SLF001
_MADE_OF_OPERATORS = frozenset({"flex_attention", "flex_attention_backward"})


def default_device() -> torch.device:
    """Return the device of tensors that are made without one, as the caller named it.

    `torch.get_default_device()` makes a tensor there, if the device has no index.
    """
    modes = torch.overrides._get_current_function_mode_stack()  # noqa: SLF001
    named = [mode.device for mode in modes if isinstance(mode, DeviceContext)]
    return named[-1] if named else torch.device("cpu")


def running_node() -> Any:
    """Return the autograd node that this thread evaluates, or None."""
    return torch._C._current_autograd_node()  # noqa: SLF001


def sequence_number_of(node: Any) -> int:
    """Return the number of an autograd node."""
    number: int = node._sequence_nr()  # noqa: SLF001
    return number


def without_new_versions(
    tensors: Sequence[torch.Tensor],
) -> AbstractContextManager[None]:
    """Hide writes within a block from the version counters of tensors."""
    # Tensors of inference mode have no counter.
    counted = tuple(each for each in tensors if not each.is_inference())
    context: AbstractContextManager[None] = (
        torch.autograd._unsafe_preserve_version_counter(counted)  # noqa: SLF001
    )
    return context


@functools.cache
def keep_from_compilers(package: str) -> None:
    """Let `torch.compile` leave the functions of a package as they are."""
    trace_rules: Any = importlib.import_module("torch._dynamo.trace_rules")
    trace_rules.add(package)


def schema_arguments(operator: Any) -> Sequence[Any]:
    """Return the arguments of an operator, each with its type and alias information."""
    arguments: Sequence[Any] = operator._schema.arguments  # noqa: SLF001
    return arguments


def function_of_operators(operator: Any) -> Callable[..., Any] | None:
    """Return the function that runs an operator of `torch.ops.higher_order` by other operators.

    None where torch runs no such function under a mode, as that of `cond`.
    """
    if operator.name() not in _MADE_OF_OPERATORS:
        return None
    key = torch._C.DispatchKey.CompositeExplicitAutograd  # noqa: SLF001
    found: Callable[..., Any] | None = operator.py_kernels.get(key)
    return found


def num_results(operator: Any) -> int:
    """Return the number of results of an operator."""
    return len(operator._schema.returns)  # noqa: SLF001


def saver_in_a_process() -> tuple[Any, str]:
    """Return owner and name of the class that saves checkpoints in a process of its own."""
    saver = importlib.import_module("torch.distributed.checkpoint.state_dict_saver")
    return saver, "_ProcessBasedAsyncCheckpointExecutor"


def default_store() -> dist.Store:
    """Return the store of the default group."""
    store: dist.Store = dist.distributed_c10d._get_default_store()  # noqa: SLF001
    return store


def local_part(tensor: Any) -> Any:
    """Return the local part of a DTensor, or any other value itself; `to_local` is an operator."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor  # noqa: SLF001


def forget_backend(name: str) -> None:
    """Undo `dist.Backend.register_backend`, for which torch has no public function."""
    del dist.Backend._plugins[name.upper()]  # noqa: SLF001
