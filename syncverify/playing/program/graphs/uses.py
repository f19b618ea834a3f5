"""The function of each word of `USES`, which computes one term of a loss.

A function takes the local part of a parameter that needs a gradient, and a constant of the
same dtype and shape. It returns a scalar in float32. The gradient is exactly the constant.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from syncverify.playing.program.graphs import (
    cpp,
    custom_function,
    hooks,
    own_accumulation,
)
from syncverify.playing.program.graphs.losses import dot, halves, parts, total
from syncverify.scenario.feature_table import PLAIN, WORDS

_MANY = 5


def twice(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Multiply the parameter by both halves of the constant."""
    one, other = halves(constant)
    return dot(local, one) + dot(local, other)


def many_times(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Multiply the parameter by five parts of the constant."""
    return total(dot(local, part) for part in parts(constant, _MANY))


def expanded(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Repeat the parameter without a copy; backward sums over the repetitions."""
    constants = torch.stack(halves(constant))
    return dot(local.unsqueeze(0).expand(constants.shape), constants)


def gathered(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Look each element up twice, as an embedding does."""
    flat = local.reshape(-1)
    rows = torch.arange(flat.numel(), device=flat.device).repeat(2)
    return dot(flat[rows], torch.cat([half.reshape(-1) for half in halves(constant)]))


def in_slices(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use two views that share no element."""
    flat, constants = local.reshape(-1), constant.reshape(-1)
    return dot(flat[0::2], constants[0::2]) + dot(flat[1::2], constants[1::2])


def unbound(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use one view for each element: one node with many outputs."""
    flat = local.reshape(-1)
    if not flat.numel():
        return dot(local, constant)
    return dot(torch.stack(torch.unbind(flat)), constant.reshape(-1))


def restrided(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use a view with given strides, in which every element appears twice."""
    flat = local.reshape(-1)
    view = flat.as_strided((2, flat.numel()), (0, 1))
    return dot(view, torch.stack([half.reshape(-1) for half in halves(constant)]))


def detached_branch(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Add a product with the detached parameter."""
    return dot(local, constant) + dot(local.detach(), constant)


def no_grad_branch(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Add a product that was computed without a graph."""
    with torch.no_grad():
        value = dot(local, constant)
    return dot(local, constant) + value


def inference_branch(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Add a value that was computed in inference mode."""
    with torch.inference_mode():
        value = dot(local, constant).item()
    return dot(local, constant) + value


def pruned_branch(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Compute a value that no root depends on, and use one of two outputs of a node."""
    _ = dot(local * 2, constant)
    used, _unused = torch.stack([local, local]).unbind()
    return dot(used, constant)


def masked(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Choose between two products, element by element."""
    chosen = constant % 2 == 0
    zero = torch.zeros_like(local)
    even = torch.where(chosen, local, zero)
    odd = torch.where(chosen, zero, local)
    return dot(even, constant) + dot(odd, constant)


def added_to_another(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Multiply, where there is no other parameter to add; else see `added_to`."""
    return dot(local, constant)


def added_to(
    other: torch.Tensor, make_local: Callable[[], torch.Tensor], constant: torch.Tensor
) -> torch.Tensor:
    """Add a tensor to another one, and take the other one away again.

    Returns:
        A scalar. The sum's backward hands one tensor to both as their gradient: a hook that writes
        it changes both. The other one's second gradient cancels it out.
    """
    # The engine begins with what was made last: with the sum, then with `make_local`.
    against = dot(other, -constant)
    local = make_local()
    return against + dot(local + other, constant)


def offloaded(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Keep the saved tensors on the host."""
    with save_on_cpu():
        return dot(local, constant)


def compressed(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Keep the saved tensors as bytes, the way a compressor takes them."""
    with saved_tensors_hooks(_pack, _unpack):
        return dot(local, constant)


def _pack(tensor: torch.Tensor) -> tuple[torch.dtype, torch.Size, torch.Tensor]:
    return tensor.dtype, tensor.shape, tensor.reshape(-1).view(torch.uint8)


def _unpack(packed: tuple[torch.dtype, torch.Size, torch.Tensor]) -> torch.Tensor:
    dtype, shape, numbers = packed
    return numbers.view(dtype).reshape(shape)


def in_place_on_copy(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Multiply a copy in place."""
    return local.clone().mul_(constant).to(torch.float32).sum()


def in_place_on_views(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Write through views of a copy: autograd rebases the copy's history."""
    copy, constants = local.reshape(-1).clone(), constant.reshape(-1)
    copy[0::2].mul_(constants[0::2])
    copy[1::2].mul_(constants[1::2])
    return copy.to(torch.float32).sum()


def in_place_result_saved(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Save the result of an operator in place, at its version of that time."""
    positive = (local - local.detach() + 1).relu_()
    return dot(positive, constant)


def written_after_use(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Write the parameter itself before backward, which does not need its value."""
    term = dot(local, constant)
    with torch.no_grad():
        local.detach().add_(0)
    return term


def checkpointed(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use the parameter in two segments, which saved-tensor hooks compute again."""
    return _in_segments(local, constant, use_reentrant=False)


def checkpointed_reentrant(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use the parameter in two segments, each with a backward inside of the outer one."""
    return _in_segments(local, constant, use_reentrant=True)


def checkpointed_and_not(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use the parameter in a reentrant segment and outside of the segment."""
    inside, outside = halves(constant)
    segment = functools.partial(_times, local, inside)
    return _segment(segment, _one(local), use_reentrant=True) + dot(local, outside)


def checkpointed_nested(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use the parameter in two reentrant segments, one inside of the other."""
    inner, outer = halves(constant)

    def run(one: torch.Tensor) -> torch.Tensor:
        segment = functools.partial(_times, local, inner)
        return _segment(segment, one, use_reentrant=True) + _times(local, outer, one)

    return _segment(run, _one(local), use_reentrant=True)


def _in_segments(
    local: torch.Tensor, constant: torch.Tensor, *, use_reentrant: bool
) -> torch.Tensor:
    segments = [functools.partial(_times, local, half) for half in halves(constant)]
    return total(
        _segment(each, _one(local), use_reentrant=use_reentrant) for each in segments
    )


def _segment(
    run: Callable[[torch.Tensor], torch.Tensor],
    entry: torch.Tensor,
    *,
    use_reentrant: bool,
) -> torch.Tensor:
    # No segment draws random numbers, so their state need not be saved.
    result: torch.Tensor = checkpoint(
        run, entry, use_reentrant=use_reentrant, preserve_rng_state=False
    )
    return result


def _times(
    local: torch.Tensor, constant: torch.Tensor, one: torch.Tensor
) -> torch.Tensor:
    return one * dot(local, constant)


def _one(local: torch.Tensor) -> torch.Tensor:
    """Make an input that needs a gradient, without which a reentrant segment has none."""
    return torch.ones((), device=local.device, requires_grad=True)


def double_backward(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Sum the gradient of a square; that gradient's gradient is the constant."""
    square = dot(local * local, constant / 2)
    (gradient,) = torch.autograd.grad(square, local, create_graph=True)
    return gradient.to(torch.float32).sum()


def jacobian_rows(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Sum all rows of a Jacobian, computed at once (`is_grads_batched`)."""
    square = (local * local * (constant / 2)).reshape(-1)
    if not square.numel():  # torch refuses an empty batch
        return dot(local, constant)
    rows = torch.eye(square.numel(), dtype=square.dtype, device=square.device)
    (jacobian,) = torch.autograd.grad(
        square, local, grad_outputs=rows, create_graph=True, is_grads_batched=True
    )
    return jacobian.to(torch.float32).sum()


def hessian(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Take the second derivative of a loss that contains the square of a factor."""
    product = dot(local, constant)
    one = torch.ones((), device=local.device)
    second: torch.Tensor = torch.autograd.functional.hessian(
        lambda factor: product * factor * factor / 2, one, create_graph=True
    )
    return second


_BASE = 256  # bfloat16 holds integers exactly up to here


def autocast(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Multiply matrices under autocast, by two digits that bfloat16 holds exactly."""
    if local.dtype == torch.float64:  # autocast does not cast float64
        return dot(local, constant)
    high = (constant / _BASE).trunc() * _BASE
    with torch.autocast(local.device.type, dtype=torch.bfloat16):
        terms = [
            torch.mm(local.reshape(1, -1), digit.reshape(-1, 1))
            for digit in (high, constant - high)
        ]
    return (terms[0] + terms[1]).to(torch.float32).sum()


def compiled_region(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Compile the product."""
    result: torch.Tensor = _compiled()(local, constant)
    return result


@functools.cache
def _compiled() -> Any:
    # `aot_eager` traces and differentiates ahead of time as the default backend does. It
    # generates no code, which would need a compiler and minutes.
    return torch.compile(dot, backend="aot_eager", dynamic=True)


Use = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

# A function has the name of its word.
_BY_NAME: Final[Mapping[str, Use]] = {
    **vars(custom_function),
    **vars(cpp),
    **vars(hooks),
    **vars(own_accumulation),
    **globals(),
    PLAIN: dot,
    custom_function.INTO_ONE_STORAGE: custom_function.into_one_storage,
}
USES: Final[Mapping[str, Use]] = {word: _BY_NAME[word] for word in WORDS["use"]}
