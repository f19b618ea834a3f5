"""The memory that gloo moves for tensors with gaps, which is not that of their elements.

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

from __future__ import annotations

import dataclasses

import torch

from syncverify.sim.network.collectives import CollectiveCall, Tensors, is_dense
from syncverify.sim.turns.refusals import refuse

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
                raise ValueError("Tensors must be contiguous")
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
