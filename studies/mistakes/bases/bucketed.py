"""Gradients in buckets: summed over mesh axes while backward runs."""

import math
from collections.abc import Iterator
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.utils.hooks import RemovableHandle

from syncverify import Capabilities


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor."""
    return tensor.to_local().detach() if isinstance(tensor, DTensor) else tensor


def grad_dtype(parameter: nn.Parameter) -> torch.dtype:
    """Return the dtype of a parameter's gradient."""
    return parameter.grad_dtype or parameter.dtype


def replicated_axes(parameter: nn.Parameter) -> tuple[int, ...]:
    """List the mesh axes over which the gradient is summed."""
    if not isinstance(parameter, DTensor):
        return ()
    placements = enumerate(parameter.placements)
    return tuple(axis for axis, placement in placements if placement.is_replicate())


def like(parameter: nn.Parameter, part: torch.Tensor) -> torch.Tensor:
    """Wrap a local gradient as the parameter is wrapped."""
    if not isinstance(parameter, DTensor):
        return part
    return DTensor.from_local(
        part,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


class MeshGroups:
    """Process groups over combinations of mesh axes."""

    def __init__(self) -> None:
        self.made: dict[tuple[DeviceMesh, tuple[int, ...]], dist.ProcessGroup] = {}

    def over(self, mesh: DeviceMesh, axes: tuple[int, ...]) -> dist.ProcessGroup:
        """Return the group of this rank over some axes."""
        if len(axes) == 1:
            return mesh.get_group(axes[0])
        if (mesh, axes) not in self.made:
            self.made[mesh, axes] = self.make(mesh, axes)
        return self.made[mesh, axes]

    def make(self, mesh: DeviceMesh, axes: tuple[int, ...]) -> dist.ProcessGroup:
        """Make a group for each set of ranks that differ in these axes alone."""
        others = [axis for axis in range(mesh.ndim) if axis not in axes]
        num_ranks = math.prod(mesh.size(axis) for axis in axes)
        rows = mesh.mesh.permute(*others, *axes).reshape(-1, num_ranks)
        made: dict[tuple[int, ...], dist.ProcessGroup] = {}
        for row in rows.tolist():
            made[tuple(row)] = dist.new_group(row)
        return next(group for row, group in made.items() if dist.get_rank() in row)

    def destroy(self) -> None:
        """Destroy the groups that were made."""
        for group in self.made.values():
            dist.destroy_process_group(group)
        self.made.clear()


class Bucket:
    """A flat buffer, and the parameters whose gradients are views of it."""

    def __init__(
        self, parameters: list[nn.Parameter], group: dist.ProcessGroup | None
    ) -> None:
        self.parameters = parameters
        self.group = group
        self.num_ready = 0
        self.work: dist.Work | None = None
        numel = sum(local(parameter).numel() for parameter in parameters)
        first = parameters[0]
        self.buffer = torch.zeros(numel, dtype=grad_dtype(first), device=first.device)
        self.attach()

    def attach(self) -> None:
        """Make each gradient a view of the buffer."""
        start = 0
        for parameter in self.parameters:
            part = local(parameter)
            view = self.buffer[start : start + part.numel()].view(part.shape)
            parameter.grad = like(parameter, view)
            start += part.numel()


class BucketedSynchronizer:
    """Launches the all-reduce of a bucket as soon as its last gradient is there."""

    capabilities = Capabilities(
        varying_accumulations=True, overlaps_backward=True, keeps_bucket_cap=True
    )

    def __init__(
        self,
        param_groups: list[list[nn.Parameter]],
        bucket_size_mb: float,
        require_accumulations: int,
    ) -> None:
        self.param_groups = param_groups
        self.cap_bytes = int(bucket_size_mb * 2**20)
        self.required = require_accumulations
        self.groups = MeshGroups()
        self.buckets: list[Bucket] = []
        self.hooks: list[RemovableHandle] = []

    def set_required_accumulations(self, count: int) -> None:
        """Change the number of micro-batches of a step."""
        self.required = count

    def bind(self) -> None:
        """Make buckets, and hooks on their parameters."""
        for parameters in self.plan():
            bucket = Bucket(parameters, self.group_of(parameters[0]))
            self.buckets.append(bucket)
            for parameter in parameters:
                hook = partial(self.on_gradient, bucket)
                handle = parameter.register_post_accumulate_grad_hook(hook)
                self.hooks.append(handle)

    def plan(self) -> Iterator[list[nn.Parameter]]:
        """Fill buckets of one dtype and one group, from the last parameter to the first."""
        filling: dict[object, list[nn.Parameter]] = {}
        for number, param_group in enumerate(self.param_groups):
            for parameter in reversed(param_group):
                if not parameter.requires_grad:
                    continue
                key = (number, grad_dtype(parameter), self.group_of(parameter))
                members = filling.setdefault(key, [])
                if members and self.num_bytes([*members, parameter]) > self.cap_bytes:
                    yield members
                    members = filling[key] = []
                members.append(parameter)
        yield from filling.values()

    def num_bytes(self, parameters: list[nn.Parameter]) -> int:
        """Count the bytes of local gradients."""
        return sum(local(p).numel() * grad_dtype(p).itemsize for p in parameters)

    def group_of(self, parameter: nn.Parameter) -> dist.ProcessGroup | None:
        """Return the group over which a gradient is summed; None if it stays local."""
        axes = replicated_axes(parameter)
        if not isinstance(parameter, DTensor) or not axes:
            return None
        return self.groups.over(parameter.device_mesh, axes)

    def on_gradient(self, bucket: Bucket, _: nn.Parameter) -> None:
        """Count a gradient, and launch a bucket that is complete."""
        bucket.num_ready += 1
        if bucket.num_ready == len(bucket.parameters) * self.required:
            self.launch(bucket)

    def launch(self, bucket: Bucket) -> None:
        """Start to sum a bucket."""
        if bucket.group is not None:
            bucket.work = dist.all_reduce(
                bucket.buffer, group=bucket.group, async_op=True
            )

    def wait(self) -> None:
        """Wait for the sums of the step."""
        for bucket in self.buckets:
            if bucket.work is not None:
                bucket.work.wait()
                bucket.work = None

    def zero_grad(self) -> None:
        """Clear gradients and counters."""
        for bucket in self.buckets:
            bucket.num_ready = 0
            bucket.buffer.zero_()

    def unbind(self) -> None:
        """Leave no hook, no buffer and no group behind."""
        for handle in self.hooks:
            handle.remove()
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                parameter.grad = None
        self.buckets.clear()
        self.hooks.clear()
        self.groups.destroy()
