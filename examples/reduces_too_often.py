"""A gradient synchronizer with one mistake; `syncverify` is to find it.

syncverify run examples.reduces_too_often:ReducesTooOften
"""

import torch.distributed as dist
from torch.distributed.tensor import DTensor


class ReducesTooOften:
    """Sums each gradient over the ranks as soon as backward has accumulated it."""

    def __init__(self, param_groups, bucket_size_mb, require_accumulations):
        self.parameters = [
            p for group in param_groups for p in group if p.requires_grad
        ]
        self.hooks = []

    def bind(self):
        for parameter in self.parameters:
            hook = parameter.register_post_accumulate_grad_hook(self.reduce)
            self.hooks.append(hook)

    def reduce(self, parameter):
        gradient = parameter.grad
        if isinstance(gradient, DTensor):
            for axis, placement in enumerate(gradient.placements):
                if placement.is_replicate():
                    group = gradient.device_mesh.get_group(axis)
                    dist.all_reduce(gradient.to_local(), group=group)

    def wait(self):
        """Nothing is asynchronous here."""

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

    def unbind(self):
        for hook in self.hooks:
            hook.remove()
