"""Gradients that arrive unreduced: told to be local, so that a bucket sums them once.

Note [Partial gradients]
~~~~~~~~~~~~~~~~~~~~~~~~
A gradient that is Partial on a mesh axis is a sum, or a mean, that nobody has formed yet.
Left to itself, DTensor's accumulation into a replicated `.grad` would form it by an
all-reduce of its own, for each parameter and each micro-batch; and the bucket would then
sum it a second time. So its label is exchanged for Replicate, which here means "what this
rank contributes", before it is accumulated. No data moves. Hooks on the parameter that the
user registers later see that label.

Only axes over which the bucket sums are relabelled, and replicated ones of a single rank,
whose sum is there already. On others DTensor does what it does without a synchronizer: it
reduces, or reduces and scatters.

Autograd sums the gradients of one parameter in one backward before any hook sees them, and
there DTensor has rules of its own: next to a Partial("sum") gradient, one that is Replicate
counts as whole, the same on all ranks, and each rank contributes its share of it, 1/n. So
to_local() without `grad_placements` gives what is summed where it is the only use, and what
is averaged where another use gives a Partial gradient. And next to a Replicate gradient a
Partial("max") is reduced inside of autograd, as a Partial gradient is by the backward of
redistribute(): it looks like any other here, and is summed once more.
"""

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Replicate

from .backward import is_accumulating
from .gradient_view import GradientView
from .grouping import ParameterPlan, local_tensor


def arrival_hook(
    find_view: Callable[[], GradientView | None],
) -> Callable[[torch.Tensor], torch.Tensor | None]:
    """Make a hook that exchanges what would be reduced twice for what is local.

    Args:
        find_view: Returns the view of the parameter whose gradients it is called with,
            while there is one.

    Returns:
        A tensor hook; it runs for `torch.autograd.grad` as well, and leaves that alone.
    """

    def on_arrival(gradient: torch.Tensor) -> torch.Tensor | None:
        view = find_view()
        if view is None or not isinstance(gradient, DTensor):
            return None
        view.arrived_as = gradient.placements
        partial = _partial_axes(gradient, view.plan)
        if not partial:
            return None
        # torch does not find the node of a sharded parameter that is empty; and there is
        # no number that a label could make wrong.
        if gradient.numel() and not is_accumulating(view.plan.parameter):
            return None
        contribution = _contribution(gradient, partial)
        view.arrived_as = contribution.placements
        return contribution

    return on_arrival


def may_arrive_partial(plan: ParameterPlan) -> bool:
    """Tell whether a parameter has axes on which its gradients are to be relabelled."""
    placements = getattr(plan.parameter, "placements", ())
    return bool(plan.reduce_axes) or any(
        _is_whole(plan.parameter, axis) for axis in range(len(placements))
    )


def _partial_axes(gradient: DTensor, plan: ParameterPlan) -> list[int]:
    """List the axes on which a sum or a mean is this rank's contribution to the bucket."""
    return [
        axis
        for axis, placement in enumerate(gradient.placements)
        # Subclasses of Partial mean more than their operation, a mask say.
        if type(placement) is Partial
        and placement.reduce_op in ("sum", "avg")
        and (axis in plan.reduce_axes or _is_whole(plan.parameter, axis))
    ]


def _is_whole(parameter: nn.Parameter, axis: int) -> bool:
    """Tell whether a rank is alone on an axis, and holds what a replica would."""
    return (
        isinstance(parameter, DTensor)
        and parameter.device_mesh.size(axis) == 1
        and parameter.placements[axis].is_replicate()
    )


def _contribution(gradient: DTensor, partial_axes: Sequence[int]) -> DTensor:
    """Relabel a gradient, and divide it where the sum has to be a mean."""
    placements = list(gradient.placements)
    divisor = 1
    for axis in partial_axes:
        if placements[axis].is_partial("avg"):
            divisor *= gradient.device_mesh.size(axis)
        placements[axis] = Replicate()
    local = local_tensor(gradient)
    return DTensor.from_local(
        local if divisor == 1 else local / divisor,
        gradient.device_mesh,
        placements,
        run_check=False,
        shape=gradient.shape,
        stride=gradient.stride(),
    )
