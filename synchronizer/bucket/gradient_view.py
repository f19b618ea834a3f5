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

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import torch
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.placement_types import Placement

from syncverify.synchronizer.contract.errors import (
    GradientMismatchError,
    ReplacedGradientError,
)
from syncverify.synchronizer.plan.grouping import (
    ParameterPlan,
    dense_stride,
    local_tensor,
)
from syncverify.synchronizer.transport.reduction import SideStream


@dataclass(slots=True, eq=False, weakref_slot=True)
class GradientView:
    """A parameter's place in a bucket, and the count of its gradients.

    Attributes:
        plan: Layout of the parameter's local gradient.
        local: This rank's part of the flat buffer, in the local gradient's shape.
        gradient: The tensor for `.grad`: an alias of `local`, or a DTensor around it.
        num_accumulations: Counted backwards of this step, see Note [One backward].
        is_used: Whether it holds a gradient, from a counted backward, from another one,
            or from before `bind()`.
        is_undefined: Whether `.grad` was None when a gradient of this step had arrived: a
            function of the graph returned None for its input, which stands for zeros.
        starts_as_none: Whether this step started with None in `.grad`, and the gradient
            lies where autograd made it.
        backward: The newest backward that brought a gradient, as an object.
        num_arrivals: Gradients that this backward has brought so far.
        expected_arrivals: Maximum of gradients that one backward has brought so far; 0
            before the first backward.
        is_complete: Whether this step brings no further gradient.
        is_dropped: Whether `.grad` is None because no rank used the parameter, or because
            this rank owns only a part of the sum.
        arrival_placements: Placements of the newest gradient before its accumulation;
            empty where no hook records them.
        parameter: The parameter, from the plan.
        address: Address of the first byte of `local`.
    """

    plan: ParameterPlan
    local: torch.Tensor
    gradient: torch.Tensor
    num_accumulations: int = 0
    is_used: bool = False
    is_undefined: bool = False
    starts_as_none: bool = False
    backward: object = None
    num_arrivals: int = 0
    expected_arrivals: int = 0
    is_complete: bool = False
    is_dropped: bool = False
    arrival_placements: tuple[Placement, ...] = field(default=())
    parameter: torch.Tensor = field(init=False)
    address: int = field(init=False)

    def __post_init__(self) -> None:
        """Store the values that every step needs."""
        self.parameter = self.plan.parameter
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
            view.local.copy_(view.source(plan.parameter.grad, side))
            view.is_used = True
        return view

    def is_attached(self) -> bool:
        """Tell whether `.grad` is still the view, with the same memory."""
        return (
            self.parameter.grad is self.gradient
            and local_tensor(self.gradient).data_ptr() == self.address
        )

    def attach(self) -> None:
        """Make the view the `.grad`, in place of any other tensor.

        Raises:
            GradientMismatchError: The parameter was cast, moved or resized after `bind()`.
        """
        if local_tensor(self.gradient).data_ptr() != self.address:
            self.gradient = _as_gradient(self.local, self.parameter)
        try:
            self.parameter.grad = self.gradient
        except RuntimeError as error:
            raise GradientMismatchError(
                f"{self.plan.name} was changed after bind()",
                expected=_kind(self.gradient),
                got=_kind(self.parameter),
            ) from error

    def restart(self, *, set_to_none: bool) -> None:
        """Start the next step; without `set_to_none`, the view is attached after it."""
        self.num_accumulations = 0
        self.is_used = self.is_undefined = self.is_complete = self.is_dropped = False
        self.backward, self.starts_as_none = None, set_to_none
        if set_to_none:
            self.parameter.grad = None

    def drop(self) -> None:
        """Set `.grad` to None until the next step."""
        self.detach()
        self.is_dropped = True

    def detach(self) -> None:
        """Set `.grad` to None, unless the user replaced it."""
        if self.parameter.grad is self.gradient:
            self.parameter.grad = None

    def refuse_reduced_gradient(self) -> None:
        """Refuse a gradient that DTensor reduced before its accumulation.

        Raises:
            GradientMismatchError: The synchronizer would sum it a second time.

        Source:
            DTensor's in-place add redistributes its argument to the placements of
            `.grad`; from Partial to Replicate that is an all-reduce. For sums and means
            see Note [Partial gradients].
        """
        for axis, placement in enumerate(self.arrival_placements):
            if axis in self.plan.reduce_axes and not isinstance(placement, Replicate):
                assert isinstance(self.parameter, DTensor), "others have no placements"
                raise GradientMismatchError(
                    f"the gradient of {self.plan.name} would be summed twice",
                    expected=f"Replicate, or a Partial sum or mean, on mesh axis {axis}",
                    got=f"{placement}, which DTensor has reduced to accumulate it",
                    where=f"mesh axes {self.parameter.device_mesh.mesh_dim_names}",
                    hint="use the parameter through to_local(), so that its gradient stays"
                    " local until the synchronizer sums it, or comes as a Partial sum or mean",
                )

    def source(self, given: torch.Tensor, side: SideStream) -> torch.Tensor:
        """Return the local tensor to copy into the view, for a `.grad` from elsewhere.

        The current stream copies it, and `.grad` becomes the view. The gradient is copied
        and not added: where autograd or the user has replaced a `.grad`, as under
        `create_graph=True`, the replacement includes all earlier accumulations.

        Raises:
            GradientMismatchError: The gradient does not fit.
        """
        gradient = given
        if isinstance(gradient, DTensor):
            if self.starts_as_none and isinstance(self.gradient, DTensor):
                # As DTensor's add does with an existing `.grad`.
                gradient = gradient.redistribute(placements=self.gradient.placements)
        elif gradient.layout is not torch.strided:
            gradient = gradient.to_dense()  # as accumulation into an existing view does
        if not self._fits(gradient):
            # A fresh view, and not `self.gradient`: that tensor is the `.grad`, and
            # `module.double()` converts it in place.
            raise GradientMismatchError(
                f"the gradient of {self.plan.name} does not fit its view",
                expected=_kind(_as_gradient(self.local, self.parameter)),
                got=_kind(gradient),
            )
        if side.queues:
            # What overlaps: `.grad` becomes the view, which may drop the last reference to
            # the source while the copy is queued. What orders it: the memory may belong to
            # another stream, for instance after `module.to()`, so its allocator waits for the
            # current stream.
            side.record_use_on_current(local_tensor(given))
            # `module.to()` gave the tensor of the view new memory, which autograd has read
            # where it put a sum in the place of the tensor; `attach()` drops that memory.
            if local_tensor(self.gradient).data_ptr() != self.address:
                side.record_use_on_current(local_tensor(self.gradient))
        source = local_tensor(gradient)
        # A gradient of `create_graph=True` requires grad. `detach` is faster than `no_grad`.
        return source.detach() if source.requires_grad else source

    def _fits(self, gradient: torch.Tensor) -> bool:
        """Tell whether a gradient can be copied into the view; builds no message."""
        local, parameter = self.local, self.parameter
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


@torch.no_grad()
def pack(moved: Sequence[GradientView], side: SideStream, label: str) -> None:
    """Copy gradients that lie elsewhere into their views, which become `.grad`.

    Zeros take the place of gradients that did not come. After `set_to_none`, gradients
    lie where autograd made them, so that nothing was added to zeros. The current stream is
    ordered after their writers.

    Raises:
        ReplacedGradientError: A gradient is gone.
    """
    sources: list[tuple[GradientView, torch.Tensor | None]] = []
    for view in moved:
        gradient = view.parameter.grad
        if gradient is None and view.num_accumulations and not view.is_undefined:
            raise ReplacedGradientError(
                "a gradient was removed after the last backward and before wait()",
                expected="every .grad to be the tensor that autograd has made",
                got=f"None at {view.plan.name}",
                where=label,
            )
        source = None if gradient is None else view.source(gradient, side)
        sources.append((view, source))
    for view, source in sources:
        if source is None:
            view.local.zero_()
        view.attach()
    come = [(view.local, source) for view, source in sources if source is not None]
    if come:
        torch._foreach_copy_([local for local, _ in come], [s for _, s in come])


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


def _kind(gradient: torch.Tensor) -> str:
    """Describe the properties that two gradients must share for a copy."""
    kind = f"{gradient.dtype} of shape {tuple(gradient.shape)} on {gradient.device}"
    if isinstance(gradient, DTensor):
        return f"{kind}, placements {gradient.placements}"
    return kind if gradient.layout is torch.strided else f"{kind}, {gradient.layout}"
