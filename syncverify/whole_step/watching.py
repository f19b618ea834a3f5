"""The gradients that clipping and the optimizer read, as copies.

The only module of this folder that replaces private names of torch. We rely on these facts, and a
test says so: `clip_grad._clip_grads_with_norm_(parameters, max_norm, total_norm, foreach)` scales
gradients in place, `clip_grad_norm_` calls it by its name, and `torch.nn.utils` exports it as
`clip_grads_with_norm_`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grad
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

_rank: Final = threading.local()
# Not options of an update: parameters, ways to compute the same, and the start of a schedule.
_HOW: Final = (
    "params",
    "foreach",
    "fused",
    "capturable",
    "differentiable",
    "initial_lr",
)
_SIMPLE: Final = (bool, int, float, str, tuple, torch.Tensor)


class StepWatch:
    """Copies of the gradients of one step, on one rank.

    Attributes:
        before_clip: Gradients before the first clipping, by parameter.
        read: Gradients as the optimizer reads them, by parameter.
        norm: The norm of the last clipping; None if torch's clipping was not called.
        has_one_norm: Whether all calls of torch's clipping were given one norm.
        optimizers: The optimizers that stepped, one entry a step.
        options: Options with which they update each parameter.
        draws: Whether the step draws random numbers.
    """

    def __init__(self) -> None:
        self.before_clip = dict[nn.Parameter, torch.Tensor]()
        self.read = dict[nn.Parameter, torch.Tensor]()
        self.norm: torch.Tensor | None = None
        self.has_one_norm = True
        self.optimizers = list[Optimizer]()
        self.options = dict[nn.Parameter, dict[str, object]]()
        self.draws = False

    @property
    def num_steps(self) -> int:
        """Number of steps of the optimizer that made most."""
        return max(Counter(self.optimizers).values(), default=0)

    @property
    def clips_parts(self) -> bool:
        """Tell whether parameters are clipped by several norms, or some of them alone."""
        is_of_others = self.before_clip and self.before_clip.keys() != self.read.keys()
        return not self.has_one_norm or bool(is_of_others)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the steps of this thread within a block."""
        _rank.watch = self
        hook = register_optimizer_step_pre_hook(_sees_step)
        try:
            yield
        finally:
            hook.remove()
            _rank.watch = None

    def sees_clip(self, parameters: Iterable[Any], norm: torch.Tensor) -> None:
        """Copy the gradients that are clipped, and the norm."""
        if self.norm is not None:
            self.has_one_norm &= _is_same_number(self.norm, norm)
        self.norm = norm.detach().clone()
        for parameter in parameters:
            if isinstance(parameter, nn.Parameter) and parameter.grad is not None:
                copy = parameter.grad.detach().clone()
                self.before_clip.setdefault(parameter, copy)

    def sees_step(self, optimizer: Optimizer) -> None:
        """Copy the gradients and the options that the optimizer reads."""
        self.optimizers.append(optimizer)
        self.options |= options_of(optimizer)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.read[parameter] = parameter.grad.detach().clone()

    def gradient(self, parameter: nn.Parameter) -> torch.Tensor | None:
        """Return the gradient of a parameter before any clipping."""
        for copies in (self.before_clip, self.read):
            if parameter in copies:
                return copies[parameter]
        return None if parameter.grad is None else parameter.grad.detach()


def _is_same_number(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two norms are known to be equal; of a DTensor only a collective knows it."""
    are_local = not isinstance(one, DTensor) and not isinstance(other, DTensor)
    return are_local and bool(torch.equal(one, other))


def options_of(optimizer: Optimizer) -> dict[nn.Parameter, dict[str, object]]:
    """Return the options that change what an optimizer makes, as they are now."""
    return {
        parameter: {
            name: value.item() if isinstance(value, torch.Tensor) else value
            for name, value in group.items()
            if name not in _HOW and isinstance(value, _SIMPLE)
        }
        for group in optimizer.param_groups
        for parameter in group["params"]
    }


@contextmanager
def watched_clipping() -> Iterator[None]:
    """Let the watch of each thread see torch's clipping within a block."""
    original = clip_grad._clip_grads_with_norm_

    def seen(
        parameters: Any,
        max_norm: float,
        total_norm: torch.Tensor,
        *rest: Any,
        **more: Any,
    ) -> None:
        is_one = isinstance(parameters, torch.Tensor)
        listed = [parameters] if is_one else [*parameters]
        if (watch := getattr(_rank, "watch", None)) is not None:
            watch.sees_clip(listed, total_norm)
        original(listed, max_norm, total_norm, *rest, **more)

    with (
        patch.object(clip_grad, "_clip_grads_with_norm_", seen),
        patch.object(nn.utils, "clip_grads_with_norm_", seen),
    ):
        yield


def _sees_step(optimizer: Optimizer, *_: object) -> None:
    if (watch := getattr(_rank, "watch", None)) is not None:
        watch.sees_step(optimizer)
