"""The view into the flat buffer that is the `.grad` of one parameter.

Note [When a gradient is complete]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
A parameter that several reentrant checkpoints use gets several gradients in one
backward. The first of them looks like any other gradient, and a reduction after it
would lose the rest. So in the last backward of a step a parameter is complete

    * when it has got as many gradients as any earlier backward has brought it, or
    * when the outermost backward ends.

Hence the very first backward is not overlapped if it is also the last of its step. A
graph that brings more gradients than ever before to a bucket in flight is an error.
"""

from dataclasses import dataclass, field
from typing import Self

import torch
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.placement_types import Placement

from syncverify.synchronizer.contract.errors import (
    GradientMismatchError,
    GradientPlacementError,
)
from syncverify.synchronizer.plan.grouping import (
    ParameterPlan,
    dense_stride,
    local_tensor,
)
from syncverify.synchronizer.transport.streams import SideStream


@dataclass(slots=True, eq=False, weakref_slot=True)
class GradientView:
    """A parameter's place in a bucket, and the count of its gradients.

    Attributes:
        local: This rank's part of the flat buffer, in the local gradient's shape.
        gradient: The tensor for `.grad`: an alias of `local`, or a DTensor around it.
        num_accumulations: Counted backwards of this step, see Note [One backward].
        is_used: Whether it holds a gradient, from a counted backward, from another one,
            or from before `bind()`.
        num_arrivals: Gradients that the running backward has brought so far.
        expected_arrivals: Maximum of gradients that one backward has brought so far; 0
            before the first backward.
        is_complete: Whether this step brings no further gradient.
        is_dropped: Whether `.grad` is None because the step has not brought a gradient
            yet, because no rank used the parameter, or because this rank owns only a
            part of the sum.
        is_stale: Whether `local` holds values of an earlier step.
        arrival_placements: Placements of the newest gradient before its accumulation;
            empty where no hook records them.
        address: Address of the first byte of `local`; changes with `offload()`.
    """

    plan: ParameterPlan
    local: torch.Tensor
    gradient: torch.Tensor
    num_accumulations: int = 0
    is_used: bool = False
    num_arrivals: int = 0
    expected_arrivals: int = 0
    is_complete: bool = False
    is_dropped: bool = False
    is_stale: bool = False
    arrival_placements: tuple[Placement, ...] = field(default=())
    address: int = field(init=False)
    _parameter: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        """Store the values that the hook of every gradient needs."""
        self.note_address()
        self._parameter = self.plan.parameter

    def note_address(self) -> None:
        """Store the address of the memory."""
        self.address = self.local.data_ptr()

    @classmethod
    def of(
        cls,
        plan: ParameterPlan,
        buffer: torch.Tensor,
        offset_numel: int,
        side: SideStream,
    ) -> Self:
        """Make a view over a zeroed buffer, and copy an existing `.grad` into it."""
        local = buffer[offset_numel:].as_strided(plan.local_shape, plan.local_stride)
        view = cls(plan, local, _as_gradient(local, plan.parameter))
        if plan.parameter.grad is not None:
            view._copy(plan.parameter.grad, side)
            view.is_used = True
        return view

    @property
    def is_dtensor(self) -> bool:
        """Whether the gradient is a DTensor."""
        return isinstance(self.gradient, DTensor)

    def is_attached(self) -> bool:
        """Tell whether `.grad` is still the view, with the same memory."""
        return (
            self._parameter.grad is self.gradient
            and local_tensor(self.gradient).data_ptr() == self.address
        )

    def is_kept_none(self) -> bool:
        """Tell whether `.grad` is None because it was dropped."""
        return self.is_dropped and self.plan.parameter.grad is None

    def has_graph(self) -> bool:
        """Tell whether `.grad` can be differentiated, as `create_graph=True` makes it."""
        gradient = self._parameter.grad
        return gradient is not None and gradient.requires_grad

    def attach(self) -> None:
        """Make the view the `.grad`, in place of any other tensor."""
        if local_tensor(self.gradient).data_ptr() != self.address:
            self.gradient = _as_gradient(self.local, self.plan.parameter)
        self._parameter.grad = self.gradient

    def restart(self, *, set_to_none: bool) -> None:
        """Start the next step; without `set_to_none`, the buffer was zeroed."""
        self.num_accumulations = self.num_arrivals = 0
        self.is_used = self.is_complete = False
        self.is_dropped = self.is_stale = set_to_none
        if set_to_none:
            self._parameter.grad = None
        elif not self.is_attached():
            self.attach()

    def zero_stale(self) -> None:
        """Zero the view: its gradient did not come in this step."""
        self.local.zero_()
        self.is_stale = self.is_dropped = False
        self.attach()

    def drop(self) -> None:
        """Set `.grad` to None until the next step."""
        self.detach()
        self.is_dropped = True

    def detach(self) -> None:
        """Set `.grad` to None, unless the user replaced it."""
        if self.plan.parameter.grad is self.gradient:
            self.plan.parameter.grad = None

    def copy_from_grad(self, side: SideStream) -> bool:
        """Copy a `.grad` of autograd or of the user into the view, and attach the view.

        The gradient is copied and not added. Autograd makes a new `.grad` where `.grad`
        was None. Where autograd replaces an existing `.grad`, as under
        `create_graph=True`, the replacement includes all earlier accumulations. None
        stands for zeros: a function of the graph returned it for its input.

        Returns:
            Whether there was a gradient.
        """
        gradient = self._parameter.grad
        if gradient is None:
            self.local.zero_()
        else:
            self._copy(gradient, side)
        self.is_stale = self.is_dropped = False
        self.attach()
        return gradient is not None

    def refuse_reduced_gradient(self) -> None:
        """Refuse a gradient that DTensor reduced before its accumulation.

        Raises:
            GradientPlacementError: The synchronizer would sum it a second time.

        Source:
            DTensor's in-place add redistributes its argument to the placements of
            `.grad`; from Partial to Replicate that is an all-reduce. For sums and means
            see Note [Partial gradients].
        """
        parameter = self.plan.parameter
        for axis, placement in enumerate(self.arrival_placements):
            if axis in self.plan.reduce_axes and not isinstance(placement, Replicate):
                raise GradientPlacementError(
                    f"the gradient of {self.plan.name} would be summed twice",
                    expected=f"Replicate, or a Partial sum or mean, on mesh axis {axis}",
                    got=f"{placement}, which DTensor has reduced to accumulate it",
                    where=f"mesh axes {_axis_names(parameter)}",
                )

    def _copy(self, given: torch.Tensor, side: SideStream) -> None:
        gradient = given
        if self.is_stale and isinstance(gradient, DTensor):
            gradient = self._redistributed(gradient)
        elif gradient.layout is not torch.strided:
            gradient = gradient.to_dense()  # as accumulation into an existing view does
        if not self._fits(gradient):
            # A fresh view, and not `self.gradient`: that tensor is the `.grad`, and
            # `module.double()` converts it in place.
            raise GradientMismatchError(
                f"the gradient of {self.plan.name} does not fit its view",
                expected=_kind(_as_gradient(self.local, self.plan.parameter)),
                got=_kind(gradient),
            )
        source = local_tensor(gradient)
        # A gradient of `create_graph=True` requires grad. `detach` is faster than `no_grad`.
        self.local.copy_(source.detach() if source.requires_grad else source)
        # What overlaps: `.grad` becomes the view, which may drop the last reference to
        # the source while the copy is queued. What orders it: the memory may belong to
        # another stream, for instance after `module.to()`, so its allocator waits for the
        # current stream.
        side.record_use_on_current(local_tensor(given))

    def _fits(self, gradient: torch.Tensor) -> bool:
        """Tell whether a gradient can be copied into the view; builds no message."""
        local, parameter = self.local, self._parameter
        if gradient.dtype != local.dtype or gradient.device != local.device:
            return False
        if isinstance(parameter, DTensor):
            return (
                isinstance(gradient, DTensor)
                and gradient.shape == parameter.shape
                and gradient.placements == parameter.placements
            )
        is_plain = gradient.layout is torch.strided and type(gradient) is not DTensor
        return is_plain and gradient.shape == local.shape

    def _redistributed(self, gradient: DTensor) -> DTensor:
        """Redistribute a gradient, as DTensor's add does with an existing `.grad`."""
        assert isinstance(self.gradient, DTensor), "as its parameter is"
        placements = self.gradient.placements
        if gradient.placements == placements:
            return gradient
        return gradient.redistribute(placements=placements)


def _as_gradient(local: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Wrap a local view as the gradient of a parameter, without communication."""
    if not isinstance(parameter, DTensor):
        # An alias, and not the view itself: the user may exchange the storage of `.grad`
        # through `.data`, which must not change the view.
        return local.view_as(local)
    return DTensor.from_local(
        local,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=dense_stride(parameter),
    )


def _axis_names(parameter: torch.Tensor) -> tuple[str, ...] | None:
    return (
        parameter.device_mesh.mesh_dim_names if isinstance(parameter, DTensor) else ()
    )


def _kind(gradient: torch.Tensor) -> str:
    """Describe the properties that two gradients must share for a copy."""
    kind = f"{gradient.dtype} of shape {tuple(gradient.shape)} on {gradient.device}"
    if isinstance(gradient, DTensor):
        return f"{kind}, placements {gradient.placements}"
    return kind if gradient.layout is torch.strided else f"{kind}, {gradient.layout}"
