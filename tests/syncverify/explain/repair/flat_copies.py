"""A right synchronizer of one flat buffer, of which tests make wrong ones."""

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local().detach() if isinstance(tensor, DTensor) else tensor


class FlatCopies:
    """Copies gradients into one buffer of each parameter's axes, and sums it in `wait()`."""

    def __init__(self, param_groups: Any, cap_mb: float, accumulations: int) -> None:
        listed = [p for group in param_groups for p in group if p.requires_grad]
        self.required = accumulations
        self.axes: dict[Any, list[Any]] = {}
        for parameter in listed:
            key = (self.axes_of(parameter), parameter.grad_dtype or parameter.dtype)
            self.axes.setdefault(key, []).append(parameter)

    def axes_of(self, parameter: Any) -> tuple[int, ...]:
        if not isinstance(parameter, DTensor):
            return ()
        placements = enumerate(parameter.placements)
        return tuple(axis for axis, each in placements if each.is_replicate())

    def set_required_accumulations(self, count: int) -> None:
        self.required = count

    def bind(self) -> None:
        self.num_came = 0
        self.hooks = [
            parameter.register_post_accumulate_grad_hook(self.count)
            for parameters in self.axes.values()
            for parameter in parameters
        ]

    def count(self, _: Any) -> None:
        self.num_came += 1

    def wait(self) -> None:
        for (axes, dtype), parameters in self.axes.items():
            if axes and self.is_complete():
                sizes = [local(parameter).numel() for parameter in parameters]
                buffer = torch.zeros(sum(sizes), dtype=dtype)
                self.copy(buffer, parameters, into=True)
                for axis in axes:
                    group = parameters[0].device_mesh.get_group(axis)
                    dist.all_reduce(buffer, group=group)
                self.copy(buffer, parameters, into=False)

    def is_complete(self) -> bool:
        return self.num_came == len(self.hooks) * self.required

    def copy(self, buffer: Any, parameters: Any, *, into: bool) -> None:
        start = 0
        for parameter in parameters:
            part = local(parameter.grad)
            place = buffer[start : start + part.numel()].view(part.shape)
            if into:
                place.copy_(part)
            else:
                part.copy_(place)
            start += part.numel()

    def zero_grad(self) -> None:
        self.num_came = 0
        for parameters in self.axes.values():
            for parameter in parameters:
                parameter.grad = None

    def unbind(self) -> None:
        for hook in self.hooks:
            hook.remove()
