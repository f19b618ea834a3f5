"""One parameter's gradient: the view into the flat buffer that `.grad` has to be."""

from dataclasses import dataclass, field
from typing import Self

import torch
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.placement_types import Placement

from .errors import GradientMismatchError, GradientPlacementError
from .grouping import ParameterPlan, dense_stride, local_tensor
from .streams import SideStream


@dataclass(slots=True, eq=False, weakref_slot=True)
class GradientView:
    """A parameter's place in a bucket, and how often it was filled.

    Attributes:
        plan: The parameter, and the layout of its local gradient.
        local: This rank's part of the flat buffer, in the local gradient's shape.
        gradient: What `.grad` has to be: an alias of `local`, or a DTensor around it.
        num_accumulations: Backwards of this step that count, see Note [One backward].
        is_used: Whether it holds a gradient, be it from a backward that does not count
            or from before `bind()`.
        num_arrivals: Gradients that the running backward has brought so far.
        expected_arrivals: The most that one backward has ever brought; 0 before any.
        is_settled: Whether this step brings no further gradient.
        is_dropped: Whether `.grad` is None because the step has not brought a gradient
            yet, because no rank used the parameter, or because this rank owns only a
            part of the sum.
        is_stale: Whether `local` holds what an earlier step left there.
        arrived_as: Placements of the newest gradient before it was accumulated; empty
            where nobody looks.
        address: Of the first byte of `local`; another one after it was offloaded.
    """

    plan: ParameterPlan
    local: torch.Tensor
    gradient: torch.Tensor
    num_accumulations: int = 0
    is_used: bool = False
    num_arrivals: int = 0
    expected_arrivals: int = 0
    is_settled: bool = False
    is_dropped: bool = False
    is_stale: bool = False
    arrived_as: tuple[Placement, ...] = field(default=())
    address: int = field(init=False)
    _parameter: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        """Look up once what the hook of every gradient needs."""
        self.note_address()
        self._parameter = self.plan.parameter

    def note_address(self) -> None:
        """Learn where the memory is."""
        self.address = self.local.data_ptr()

    @classmethod
    def of(
        cls,
        plan: ParameterPlan,
        buffer: torch.Tensor,
        offset_numel: int,
        side: SideStream,
    ) -> Self:
        """Lay a view over a buffer, and copy a `.grad` that exists into it.

        Args:
            plan: The parameter.
            buffer: Shape (N,), zeroed.
            offset_numel: Where in the buffer the view starts.
            side: Knows the streams of its device.

        Returns:
            The view; `.grad` is left alone.

        Raises:
            GradientMismatchError: The `.grad` does not fit.
        """
        local = buffer[offset_numel:].as_strided(plan.local_shape, plan.local_stride)
        view = cls(plan, local, _as_gradient(local, plan.parameter))
        if plan.parameter.grad is not None:
            view._copy(plan.parameter.grad, side)
            view.is_used = True
        return view

    def is_attached(self) -> bool:
        """Tell whether `.grad` still is the view, memory included."""
        return (
            self._parameter.grad is self.gradient
            and local_tensor(self.gradient).data_ptr() == self.address
        )

    def is_kept_none(self) -> bool:
        """Tell whether `.grad` is None because it was dropped."""
        return self.is_dropped and self.plan.parameter.grad is None

    def attach(self) -> None:
        """Make `.grad` the view, whatever it was."""
        if local_tensor(self.gradient).data_ptr() != self.address:
            self.gradient = _as_gradient(self.local, self.plan.parameter)
        self._parameter.grad = self.gradient

    def restart(self, *, set_to_none: bool) -> None:
        """Start the next step.

        Args:
            set_to_none: Whether the first gradient is going to be copied into the view.
                Otherwise the buffer was zeroed.
        """
        self.num_accumulations = self.num_arrivals = 0
        self.is_used = self.is_settled = False
        self.is_dropped = self.is_stale = set_to_none
        if set_to_none:
            self._parameter.grad = None
        elif not self.is_attached():
            self.attach()

    def freshen(self) -> None:
        """Make up for a gradient that did not come: it is zero."""
        self.local.zero_()
        self.is_stale = self.is_dropped = False
        self.attach()

    def drop(self) -> None:
        """Set `.grad` to None until the next step."""
        self.detach()
        self.is_dropped = True

    def detach(self) -> None:
        """Set `.grad` to None; one that the user put there is left to the user."""
        if self.plan.parameter.grad is self.gradient:
            self.plan.parameter.grad = None

    def take_over(self, side: SideStream) -> None:
        """Move a gradient into the view that autograd or the user put beside it.

        It is copied and not added: autograd puts the first gradient beside the view where
        `.grad` was None, and where it replaces a `.grad`, as it does under
        `create_graph=True`, the replacement holds all that was accumulated before.

        Args:
            side: Knows the streams of its device.

        Raises:
            GradientMismatchError: The gradient does not fit.
        """
        self._copy(self._parameter.grad, side)
        self.is_stale = self.is_dropped = False
        self.attach()

    def refuse_reduced_gradient(self) -> None:
        """Refuse a gradient that DTensor has reduced in order to accumulate it.

        Raises:
            GradientPlacementError: The synchronizer would sum it a second time.

        Source:
            DTensor's in-place add redistributes its argument to the placements of
            `.grad`; from Partial to Replicate that is an all-reduce. For sums and means
            see Note [Partial gradients].
        """
        parameter = self.plan.parameter
        for axis, placement in enumerate(self.arrived_as):
            if axis in self.plan.reduce_axes and not isinstance(placement, Replicate):
                raise GradientPlacementError(
                    f"the gradient of {self.plan.name} would be summed twice",
                    expected=f"Replicate, or a Partial sum or mean, on mesh axis {axis}",
                    got=f"{placement}, which DTensor has reduced to accumulate it",
                    where=f"mesh axes {_axis_names(parameter)}",
                )

    def _copy(self, gradient: torch.Tensor | None, side: SideStream) -> None:
        given = gradient
        if self.is_stale and isinstance(gradient, DTensor):
            gradient = self._placed(gradient)
        if given is None or gradient is None or not self._fits(gradient):
            # Not `self.gradient`: that is `.grad`, and `module.double()` converts it.
            raise GradientMismatchError(
                f"the gradient of {self.plan.name} does not fit its view",
                expected=_kind(_as_gradient(self.local, self.plan.parameter)),
                got=_kind(gradient),
            )
        source = local_tensor(gradient)
        # As under `create_graph=True`; entering `no_grad` takes longer than the copy.
        self.local.copy_(source.detach() if source.requires_grad else source)
        # `.grad` becomes the view, which may drop the last reference while the copy is
        # still queued here; the memory may be another stream's, as `module.to()` moves it.
        side.outlives_current(local_tensor(given))

    def _fits(self, gradient: torch.Tensor) -> bool:
        """Tell whether a gradient can be copied, without the cost of saying why not."""
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

    def _placed(self, gradient: DTensor) -> DTensor:
        """Do what DTensor's add would have done had there been a `.grad` to add to."""
        assert isinstance(self.gradient, DTensor), "as its parameter is"
        placements = self.gradient.placements
        if gradient.placements == placements:
            return gradient
        return gradient.redistribute(placements=placements)


def _as_gradient(local: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Wrap a local view as the gradient of a parameter, without communication."""
    if not isinstance(parameter, DTensor):
        # An alias: the user may exchange the storage of `.grad` through `.data`, and
        # then the view itself must stay whole.
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


def _kind(gradient: torch.Tensor | None) -> str:
    """Say what two gradients must have in common for one to be copied to the other."""
    if gradient is None:
        return "no gradient"
    kind = f"{gradient.dtype} of shape {tuple(gradient.shape)} on {gradient.device}"
    if isinstance(gradient, DTensor):
        return f"{kind}, placements {gradient.placements}"
    return kind if gradient.layout is torch.strided else f"{kind}, {gradient.layout}"
