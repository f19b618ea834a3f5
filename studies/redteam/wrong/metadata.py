"""Gradients with wrong metadata, and collectives that move memory in the order in which it lies."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate
from typing_extensions import override

from studies.redteam.bases import local_of, reduce_groups_of
from studies.redteam.program import wrong
from syncverify.subjects.bugbank.bases.main_grads import MainGrads
from syncverify.subjects.bugbank.bases.placements import local
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads


class HandsOut(PlainGrads):
    """Right: gradients of DTensors are made again from their local numbers."""

    @override
    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            grad = parameter.grad
            if isinstance(grad, DTensor):
                parameter.grad = DTensor.from_local(
                    local(grad),
                    self.mesh(grad),
                    self.placements(grad),
                    shape=grad.shape,
                    stride=grad.stride(),
                    run_check=False,
                )

    def mesh(self, grad: DTensor) -> DeviceMesh:
        """Return the mesh of a gradient."""
        return grad.device_mesh

    def placements(self, grad: DTensor) -> list[Placement]:
        """Return the placements of a gradient."""
        return [*grad.placements]


@wrong(trigger="2 ranks; whoever redistributes `.grad` sums it again")
class StaysPartial(HandsOut):
    """Reduced gradients are handed out as `Partial`."""

    @override
    def placements(self, grad: DTensor) -> list[Placement]:
        return [Partial() if each.is_replicate() else each for each in grad.placements]


@wrong(trigger="2 ranks, a sharded parameter")
class CallsShardsReplicas(HandsOut):
    """Reduced gradients are handed out as `Replicate`, also those of shards."""

    @override
    def placements(self, grad: DTensor) -> list[Placement]:
        return [Replicate()] * grad.device_mesh.ndim


@wrong(trigger="a bfloat16 parameter; the next optimizer step fails")
class HandsOutFloat32(MainGrads):
    """Gradients of 16 bits are handed out in float32."""

    @override
    def wait(self) -> None:
        super().wait()
        for parameter in self.moved:
            if parameter.grad is not None:
                parameter.grad_dtype = None
                parameter.grad = parameter.grad.float()


@wrong(trigger="any; the next backward adds to a graph")
class RequiresGrad(PlainGrads):
    """Reduced gradients require gradients themselves."""

    @override
    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad.requires_grad_()


@wrong(trigger="a mesh of 2 axes, a sharded parameter")
class SwapsAxes(HandsOut):
    """Reduced gradients name the placements of a mesh in the opposite order."""

    @override
    def placements(self, grad: DTensor) -> list[Placement]:
        return [*grad.placements][::-1]


@wrong(trigger="2 ranks on a mesh of 1 axis: `.grad` lives on another mesh")
class FlattensMesh(HandsOut):
    """Gradients are handed out on the first axis of the mesh alone."""

    @override
    def mesh(self, grad: DTensor) -> DeviceMesh:
        names = grad.device_mesh.mesh_dim_names
        return grad.device_mesh[names[0]] if names else grad.device_mesh

    @override
    def placements(self, grad: DTensor) -> list[Placement]:
        return [*grad.placements][: self.mesh(grad).ndim]


@wrong(trigger="any; a graph keeps memory, and grows with each step")
class KeepsAGraph(PlainGrads):
    """Reduced gradients are results of an operator under grad mode, and not leaves."""

    @override
    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            if parameter.grad is not None:
                one = torch.ones((), dtype=parameter.grad.dtype, requires_grad=True)
                parameter.grad = parameter.grad * one


@wrong(trigger="2 ranks, a transposed gradient", needs=("memory_format=transposed",))
class GathersTransposed(PlainGrads):
    """Transposed gradients are gathered into row-major memory."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        part = local_of(gradient)
        for group in reduce_groups_of(gradient):
            parts = [
                torch.empty(part.shape, dtype=part.dtype) for _ in range(group.size())
            ]
            dist.all_gather(parts, part, group=group)
            part.copy_(torch.stack(parts).sum(0))


@wrong(trigger="2 ranks, a transposed gradient", needs=("memory_format=transposed",))
class ScattersTransposed(PlainGrads):
    """The root's transposed sum is broadcast into row-major memory."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        part = local_of(gradient)
        for group in reduce_groups_of(gradient):
            dist.all_reduce(part, group=group)
            root = dist.get_global_rank(group, 0)
            received = part if dist.get_rank() == root else part.contiguous()
            dist.broadcast(received, root, group=group)
            part.copy_(received)


@wrong(trigger="2 ranks, transposed on one rank", needs=("memory_format=transposed",))
class ReducesMixedLayouts(PlainGrads):
    """Odd ranks reduce a row-major copy, even ranks the transposed gradient itself."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        part = local_of(gradient)
        for group in reduce_groups_of(gradient):
            sent = part.contiguous() if group.rank() % 2 else part
            dist.all_reduce(sent, group=group)
            part.copy_(sent)
