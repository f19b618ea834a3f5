"""The place at which an operator runs, where some of its tensors lie in memory of the host.

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

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch

from syncverify.sim.recording.operators import Effects

_COPIES = ("aten.copy_.", "aten._foreach_copy_.")
# `non_blocking` is the third parameter of each.
_NON_BLOCKING = 2

# "kernel": on the device, with a scalar of the host that the host reads as it queues the kernel.
# "nothing": torch returns before it runs anything.
OperatorSite = Literal["device", "host", "copy", "blocking copy", "kernel", "nothing"]


def place_of(
    effects: Effects,
    tensors: Sequence[torch.Tensor],
    on_host: Sequence[bool],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    *,
    are_pinned: bool,
) -> OperatorSite:
    """Return the place at which an operator runs.

    Args:
        effects: Effects of the operator.
        tensors: All tensors that it reads or writes.
        on_host: By tensor, whether it is known to lie on the host.
        args: Positional arguments of the operator.
        kwargs: Its keyword arguments.
        are_pinned: Whether all of the memory on the host is pinned. CUDA copies other memory
            to a place of its own before it returns.
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
