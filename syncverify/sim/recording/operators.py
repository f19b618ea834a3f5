"""Every operator of a rank's thread, with its memory effects and the place where it runs.

The schema of an operator states the effects.

Note [Memory of the host]
    On CPU tensors, "the host" and "the device" are the same. A tensor is known to lie on the
    host if `cpu()` or `to("cpu")` made it, if it is pinned, if a subject that sees a device made
    it on the CPU, or if an operator made it of such tensors. An operator on them runs at once, and
    the stream of a copy does not order it: only a host that waits knows that the copy is done.

Source:
    `copy_requires_temporaries` and `copy_kernel_cuda` in ATen/native/cuda/Copy.cu; `copy_impl` in
    ATen/native/Copy.cpp, which returns at once if there is no element; "CUDA semantics" in
    torch's documentation, on pinned memory; "API synchronization behavior" in CUDA's, on
    `cudaMemcpyAsync` and pageable memory.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch._subclasses import FakeTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import (
    _get_current_dispatch_mode,
    _pop_mode,
    _push_mode,
)
from typing_extensions import override

from syncverify.sim.device import torch_internals
from syncverify.sim.turns.refusals import refuse
from syncverify.trace.dispatch_modes import EagerMode, HarnessMode

# Operators that write all of `self` and read nothing of `self`.
_OVERWRITE = frozenset({
    "_foreach_copy_", "_foreach_zero_", "copy_", "fill_", "normal_", "uniform_", "zero_",
})  # fmt: skip
# Operators that overwrite an argument, by its position, though their schema does not say so: FSDP2
# copies the shards of a rank into the memory of the all-gather.
_UNDECLARED = frozenset({("all_gather_copy_in", 1)})
# Prefixes of operators that allocate and leave the memory as it is.
_ALLOCATE = ("empty", "new_empty")
# Prefixes of operators that use only the shape and dtype of their arguments.
_LIKE = ("empty", "full", "new_", "ones", "rand", "zeros")
# Operators for which the host waits on CUDA: the host needs the values of the current
# stream, or their number.
_HOST_SYNCS = frozenset({
    "_local_scalar_dense", "_unique2", "equal", "masked_select", "nonzero",
    "unique_consecutive", "unique_dim",
})  # fmt: skip
# Operators that touch no memory, though their schema shows no alias.
_METADATA_ONLY = frozenset(
    {"_unsafe_view", "_wrap_tensor_autograd", "is_same_size", "wait_tensor"}
)
# Libraries whose operators are collectives: process groups record those themselves.
_COLLECTIVES = frozenset({"c10d", "_c10d_functional"})


@dataclass(frozen=True, slots=True)
class Effects:
    """The memory effects of one operator, with positions and names of its arguments."""

    name: str
    reads: tuple[tuple[int, str], ...]
    writes: tuple[tuple[int, str], ...]
    fills: bool  # it also writes its new results
    waits_on_host: bool  # the host waits for the current stream


@functools.cache  # operators are few, and live as long as the process
def effects_of(operator: Any) -> Effects | None:
    """Return the memory effects of a `torch._ops.OpOverload`.

    None for an operator on metadata alone, such as a view. None for a collective, which its
    process group records.
    """
    name, library = operator.overloadpacket.__name__, operator.namespace
    is_view = operator.is_view or torch.Tag.inplace_view in operator.tags
    # Functional collectives copy their input first, and no process group sees the copy.
    copies = library == "_c10d_functional" and not name.endswith("_")
    is_collective = library in _COLLECTIVES and not copies
    if is_view or is_collective or name in _METADATA_ONLY:
        return None
    reads, writes = [], []
    for index, argument in enumerate(torch_internals.schema_arguments(operator)):
        if "Tensor" not in str(argument.type):
            continue
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
    fills, waits_on_host = not name.startswith(_ALLOCATE), name in _HOST_SYNCS
    return Effects(str(operator), tuple(reads), tuple(writes), fills, waits_on_host)


def needs_no_value(effects: Effects, tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether an operator for which the host waits goes on without a value of its tensors.

    Without an element there is no value. `equal` of tensors that differ in shape, or that are
    the same memory, compares nothing.

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
    are_plain = all(
        type(each) is torch.Tensor and each.layout is torch.strided
        for each in (first, second)
    )
    return are_plain and first.dtype == second.dtype and first.is_set_to(second)


def tensors_at(
    places: tuple[tuple[int, str], ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
) -> list[torch.Tensor]:
    """List the tensors among the arguments at `places`, tensors in lists included."""
    found: list[torch.Tensor] = []
    for index, name in places:
        given = args[index] if index < len(args) else (kwargs or {}).get(name)
        if isinstance(given, torch.Tensor):
            found.append(given)
        elif isinstance(given, (list, tuple)):
            found += [entry for entry in given if entry is not None]
    return found


_COPIES = ("aten.copy_.", "aten._foreach_copy_.")
# `non_blocking` is the third parameter of each.
_NON_BLOCKING = 2

# "kernel": on the device, with a scalar of the host that the host reads as it queues the kernel.
# "nothing": torch returns before it runs anything.
OperatorSite = Literal["device", "host", "copy", "blocking copy", "kernel", "nothing"]


def site_of(
    effects: Effects,
    tensors: Sequence[torch.Tensor],
    on_host: Sequence[bool],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    *,
    are_pinned: bool,
) -> OperatorSite:
    """Return the place at which an operator runs, by the tensors that it reads or writes.

    `on_host` says of each tensor whether it is known to lie on the host. `are_pinned` says that
    all of the memory on the host is pinned. CUDA copies other memory to a place of its own before
    it returns.
    """
    if not any(on_host):
        return "device"
    if all(on_host):
        return "host"
    if effects.name.startswith(_COPIES):
        if not any(tensor.numel() for tensor in tensors):
            return "nothing"
        given = (kwargs or {}).get("non_blocking", args[_NON_BLOCKING:])
        if given not in (True, (True,)):
            return "blocking copy"
        if are_pinned:
            return "copy"
        # CUDA takes other memory of the host before it returns, and does not wait for the
        # device. A copy to such memory returns when it is done.
        is_to_host = any(on_host[len(on_host) // 2 :])
        return "blocking copy" if is_to_host else "kernel"
    # CUDA refuses any other mixture, so the other tensors lie on the host as well.
    is_scalar = all(t.dim() == 0 for t, on in zip(tensors, on_host, strict=True) if on)
    return "kernel" if is_scalar else "host"


# Plain tensors come without types, except from operators that are made of others, and
# `Parameter.data` passes its class on, though no operator of its own comes next.
_KNOWN_TYPES = {(), (DTensor,), (torch.Tensor,), (nn.Parameter,)}

OnArguments = Callable[[Any, tuple[Any, ...]], None]
Note = Callable[[int, Effects, tuple[Any, ...], dict[str, Any] | None, Any], None]


class AccessRecording(EagerMode, HarnessMode):
    """Dispatch mode that sees the operators of one thread while it is on.

    An operator on DTensors counts as the same operator on their local parts. Recording its
    local operators instead would double the cost and show no more: process groups record
    the communication.

    `note` receives, for each operator that touches memory: how many events there were before, its
    effects, its arguments by position and by name, and its result. `on_arguments` receives each
    operator before it runs, views, too, and its arguments by position.
    """

    supports_higher_order_operators = True

    def __init__(
        self, note: Note, *, on_arguments: OnArguments, num_events: Callable[[], int]
    ) -> None:
        super().__init__()
        self._note = note
        self.on_arguments = on_arguments
        self._num_events = num_events
        self._is_on = False
        self._is_silent = False

    @override
    def __torch_dispatch__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run an operator, then note it; one that is made of operators notes each of them."""
        if not isinstance(func, torch_internals.Operator):  # one of higher order
            return self._run_parts(func, args, kwargs or {})
        if types not in _KNOWN_TYPES:
            if any(issubclass(kind, FakeTensor) for kind in types):
                return func(*args, **(kwargs or {}))  # no memory behind it
            return NotImplemented  # unwraps itself: its operators come next
        self.on_arguments(func, args)
        before = self._num_events()  # it may launch collectives within
        result = func(*args, **kwargs) if kwargs else func(*args)
        effects = effects_of(func)
        if effects is not None and not self._is_silent:
            self._note(before, effects, args, kwargs, result)
        return result

    def _run_parts(
        self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the operators of which another one is made, such as `flex_attention`."""
        run = torch_internals.function_of_operators(operator)
        if run is None:
            refuse(f"the operator {operator.name()}")
        _push_mode(self)  # torch takes a mode off while it handles an operator
        try:
            return run(*args, **kwargs)
        finally:
            _pop_mode()

    def switch(self, *, on: bool) -> None:
        """Turn the recording on or off for the calling thread.

        torch's own `with` is not used: it keeps flags for the whole process, which
        threads that take turns would mix up.
        """
        if not self._is_on and on:
            _push_mode(self)
            self._is_on = True
        elif self._is_on and not on and _get_current_dispatch_mode() is self:
            _pop_mode()
            self._is_on = False
        else:  # a mode of the subject's lies on top
            self._is_silent = self._is_on and not on
