"""Partial gradients: relabelled as local on arrival, so that a bucket sums them once.

Note [Partial gradients]
~~~~~~~~~~~~~~~~~~~~~~~~
A gradient that is Partial on a mesh axis is one term of a sum, or of a mean, that is
not computed yet. DTensor's accumulation into a replicated `.grad` would compute it by
an all-reduce for each parameter and each micro-batch, and the bucket would then sum it
a second time. So the placement is replaced by Replicate before the accumulation. Here
Replicate means "the contribution of this rank". No data moves. Hooks that the user
registers later on the parameter see the new placement.

The hook relabels the axes over which the bucket sums, and replicated axes of a single
rank, whose sum is complete already. On other axes DTensor does the same as without a
synchronizer: it reduces, or reduces and scatters.

Autograd sums the gradients of one parameter in one backward before any hook sees them.
DTensor has two rules for these sums that the hook cannot change:

    * Beside a Partial("sum") gradient, a Replicate gradient counts as complete and
      equal on all ranks, and each rank contributes 1/n of it. So the gradient of
      to_local() without `grad_placements` is summed where that is the only use, and
      averaged where another use gives a Partial gradient.
    * Beside a Replicate gradient, autograd reduces a Partial("max") gradient. The
      backward of redistribute() reduces a Partial gradient as well. Such a gradient
      looks like any other here, and the bucket sums it once more.
"""

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Replicate

from syncverify.synchronizer.backward.autograd_hooks import is_accumulating
from syncverify.synchronizer.bucket.gradient_view import GradientView
from syncverify.synchronizer.plan.grouping import ParameterPlan, local_tensor


def relabelled(gradient: torch.Tensor, view: GradientView) -> DTensor | None:
    """Return a gradient as local that would be reduced twice; None for others.

    For a tensor hook, which runs for `torch.autograd.grad` as well. Those gradients stay.
    """
    if not isinstance(gradient, DTensor):
        return None
    view.arrival_placements = gradient.placements
    plan, placements, divisor = view.plan, list(gradient.placements), 1
    for axis, placement in enumerate(gradient.placements):
        # Subclasses of Partial mean more than their operation, for instance a mask.
        if (
            type(placement) is Partial
            and placement.reduce_op in ("sum", "avg")
            and (axis in plan.reduce_axes or _is_whole(plan.parameter, axis))
        ):
            placements[axis] = Replicate()
            if placement.reduce_op == "avg":  # divided where the sum has to be a mean
                divisor *= gradient.device_mesh.size(axis)
    # torch finds no node for an empty shard. An empty gradient has no value that a
    # wrong placement could change.
    if placements == list(gradient.placements) or (
        gradient.numel() and not is_accumulating(plan.parameter)
    ):
        return None
    view.arrival_placements = tuple(placements)
    local = local_tensor(gradient)
    return DTensor.from_local(
        local if divisor == 1 else local / divisor,
        gradient.device_mesh,
        placements,
        run_check=False,
        shape=gradient.shape,
        stride=gradient.stride(),
    )


def may_arrive_partial(plan: ParameterPlan) -> bool:
    """Tell whether a parameter has axes on which its gradients are relabelled."""
    placements = getattr(plan.parameter, "placements", ())
    return bool(plan.reduce_axes) or any(
        _is_whole(plan.parameter, axis) for axis in range(len(placements))
    )


def _is_whole(parameter: nn.Parameter, axis: int) -> bool:
    """Tell whether this rank is alone on an axis with a replicated parameter."""
    return (
        isinstance(parameter, DTensor)
        and parameter.device_mesh.size(axis) == 1
        and parameter.placements[axis].is_replicate()
    )
