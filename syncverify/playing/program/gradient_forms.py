"""The form of a gradient: all of it but its numbers, compared with its parameter's.

An optimizer writes `parameter.grad` in place and adds it to the parameter. Plain torch leaves a
gradient that allows both: see "Gradient layouts" in the docs of `torch.Tensor.grad`.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from syncverify.trace.run import Misfit


def misfits_of(parameters: Mapping[str, nn.Parameter]) -> dict[str, tuple[Misfit, ...]]:
    """Return how gradients differ in form from those of plain torch, by name of the parameter.

    Placements on a mesh axis of one rank make no difference.
    """
    return {
        name: misfits
        for name, each in parameters.items()
        if each.grad is not None and (misfits := tuple(_misfits(each, each.grad)))
    }


def _misfits(parameter: torch.Tensor, gradient: torch.Tensor) -> Iterator[Misfit]:
    if gradient.requires_grad:
        yield "keeps_graph", "it requires a gradient, and keeps the graph behind it"
    if gradient.is_inference():
        yield "inference_tensor", "it is an inference tensor, which no step may change"
    if isinstance(gradient, DTensor) != isinstance(parameter, DTensor):
        text = f"it is a {_kind(gradient)}, and the parameter a {_kind(parameter)}"
        yield "wrong_type", text
    elif isinstance(gradient, DTensor) and isinstance(parameter, DTensor):
        yield from _on_mesh(parameter, gradient)
        yield from _in_memory(parameter._local_tensor, gradient._local_tensor)  # noqa: SLF001  # `to_local()` is an operator, and costs 30 times as much
    else:
        yield from _in_memory(parameter, gradient)


def _kind(tensor: torch.Tensor) -> str:
    return "DTensor" if isinstance(tensor, DTensor) else "ordinary tensor"


def _on_mesh(parameter: DTensor, gradient: DTensor) -> Iterator[Misfit]:
    mesh = parameter.device_mesh
    if gradient.device_mesh != mesh:
        yield "wrong_mesh", f"it is on {gradient.device_mesh}, the parameter on {mesh}"
        return
    axes = zip(gradient.placements, parameter.placements, mesh.shape, strict=True)
    # A `Partial` gradient is wrong where it is summed already: `still_partial` of the values.
    if any(
        ours != theirs and not ours.is_partial() and size > 1
        for ours, theirs, size in axes
    ):
        yield (
            "wrong_placements",
            f"it is placed {gradient.placements}, the parameter {parameter.placements}",
        )


def _in_memory(parameter: torch.Tensor, gradient: torch.Tensor) -> Iterator[Misfit]:
    """Find strides that plain torch does not leave, in the local part."""
    if gradient.layout != parameter.layout:
        yield "wrong_strides", f"its layout is {gradient.layout}"
    elif gradient.shape == parameter.shape and not _has_strides_of(parameter, gradient):
        ours, theirs = tuple(gradient.stride()), tuple(parameter.stride())
        yield "wrong_strides", f"its strides are {ours}, the parameter's {theirs}"


def _has_strides_of(parameter: torch.Tensor, gradient: torch.Tensor) -> bool:
    """Tell whether strides are equal wherever they matter: in dims of two elements or more."""
    if gradient.is_contiguous():  # torch lays out the gradients of some parameters so
        return True
    pairs = zip(parameter.shape, parameter.stride(), gradient.stride(), strict=True)
    return all(ours == theirs for size, ours, theirs in pairs if size > 1)
