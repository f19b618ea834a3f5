"""A right synchronizer of flat buckets over any axes, of which tests make wrong ones."""

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


class FlatBuckets:
    """Sends a flat copy of a bucket from the hook that completes it, axis by axis."""

    def __init__(self, param_groups: Any, cap_mb: float, accumulations: int) -> None:
        self.groups = [[*group] for group in param_groups]
        self.cap_bytes = int(cap_mb * 2**20)
        self.need = accumulations

    def bind(self) -> None:
        self.count: dict[Any, int] = {}
        self.bucket_of: dict[Any, Any] = {}
        self.pending: list[Any] = []
        self.hooks = []
        for group in self.groups:
            self.fill([p for p in reversed(group) if p.requires_grad])
        for parameter in self.bucket_of:
            self.count[parameter] = 0
            hook = parameter.register_post_accumulate_grad_hook(self.on_gradient)
            self.hooks.append(hook)

    def fill(self, parameters: Any) -> None:
        last: dict[Any, Any] = {}
        for parameter in parameters:
            axes = self.axes_of(parameter)
            num_bytes = parameter.to_local().nbytes if axes else 0
            bucket = last.get((axes, parameter.dtype))
            if axes and (
                bucket is None or bucket["bytes"] + num_bytes > self.cap_bytes
            ):
                bucket = {"parameters": [], "bytes": 0, "ready": set(), "axes": axes}
                last[axes, parameter.dtype] = bucket
            if axes:
                bucket["parameters"].append(parameter)
                bucket["bytes"] += num_bytes
                self.bucket_of[parameter] = bucket

    def axes_of(self, parameter: Any) -> tuple[int, ...]:
        if not isinstance(parameter, DTensor):
            return ()
        placements = enumerate(parameter.placements)
        return tuple(axis for axis, each in placements if each.is_replicate())

    def on_gradient(self, parameter: Any) -> None:
        self.count[parameter] += 1
        if self.count[parameter] < self.need:
            return
        bucket = self.bucket_of[parameter]
        bucket["ready"].add(parameter)
        if len(bucket["ready"]) == len(bucket["parameters"]):
            self.launch(bucket)

    def launch(self, bucket: Any) -> None:
        parts = [each.grad.to_local() for each in bucket["parameters"]]
        flat = torch.cat([part.reshape(-1) for part in parts])
        mesh, works = bucket["parameters"][0].device_mesh, []
        for axis in bucket["axes"]:
            if works:
                works[-1].wait()
            group = mesh.get_group(axis)
            works.append(dist.all_reduce(flat, group=group, async_op=True))
        self.pending.append((bucket, flat, parts, works[-1]))

    def wait(self) -> None:
        for bucket, flat, parts, work in self.pending:
            work.wait()
            start = 0
            for part in parts:
                part.copy_(flat[start : start + part.numel()].view_as(part))
                start += part.numel()
            bucket["ready"].clear()
        self.pending.clear()
        for parameter in self.count:
            self.count[parameter] = 0

    def zero_grad(self) -> None:
        for group in self.groups:
            for parameter in group:
                parameter.grad = None

    def unbind(self) -> None:
        for hook in self.hooks:
            hook.remove()
