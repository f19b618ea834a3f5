"""A step of mixed precision that overflows on one rank, and the step after it.

A `GradScaler` scales the loss of the second step under autocast, and the gradient of rank 0
is no longer finite. The sum is not finite either, on any rank. If the synchronizer hands on
the sum, the scalers of all ranks skip the step and back off alike, and the third step is
right. If the synchronizer drops values that are not finite, or a rank reads its gradient too
early, scales and weights differ between ranks.

Source:
    torch/amp/grad_scaler.py: each process has its own scaler, and scalers agree only through
    the gradients.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from typing_extensions import override

from syncverify.scenario.feature_table import PLAIN
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import Subject, resolve
from syncverify.subjects.subject_api import RunsMicroBatches, Synchronizer

_OVERFLOWS_IN_STEP = 1
_SCALE = 2.0**16
_TOO_LARGE = 2.0**120  # times the scale, beyond float32
# The scaler judges the step that is skipped, and no property reads a gradient of the step.
SCENARIO: Final = Scenario(
    mesh=MeshSpec((2,), ("dp",)),
    parameters=tuple(
        ParameterSpec(f"p{index}", shape, ("R",), use="autocast")
        for index, shape in enumerate([(3,), (2, 3), (5,)])
    ),
    accumulations=(2, 1, 2),
    bucket_cap_bytes=32,
    events=(PLAIN, "zero_before_wait", PLAIN),
)


class OverlookedOverflowError(Exception):
    """A rank's scaler did not skip a step in which a rank overflowed."""


OVERLOOKED: Final = OverlookedOverflowError.__name__


def overflowing(subject: Subject) -> Subject:
    """Make a subject's training program overflow on rank 0, in the second step.

    Args:
        subject: Any subject that covers autocast and a step that is thrown away.

    Returns:
        A subject that drives the given one, and raises `OverlookedOverflowError` where a
        scaler does not skip the step.
    """
    factory = _Factory(subject)
    return replace(subject, factory=factory)


class _Factory:
    """Makes the training program; pickled by name, so that other processes can make it."""

    def __init__(self, subject: Subject) -> None:
        self._name = subject.name
        self._inner = subject.factory

    def __call__(
        self, param_groups: list[list[nn.Parameter]], size_mb: float, required: int
    ) -> Synchronizer:
        inner = self._inner(param_groups, size_mb, required)
        parameters = [p for group in param_groups for p in group]
        return _OverflowingProgram(inner, parameters)

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return _factory_of, (self._name,)


def _factory_of(name: str) -> _Factory:
    return _Factory(resolve(name))


class _OverflowingProgram:
    def __init__(self, inner: Any, parameters: list[nn.Parameter]) -> None:
        self._inner = inner
        self._parameters = parameters
        self._step = 0

    def set_required_accumulations(self, require_accumulations: int) -> None:
        if hasattr(self._inner, "set_required_accumulations"):
            self._inner.set_required_accumulations(require_accumulations)

    def bind(self) -> None:
        self._inner.bind()

    def unbind(self) -> None:
        self._inner.unbind()

    def wait(self) -> None:
        self._inner.wait()

    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        def compute_scaled() -> torch.Tensor:
            loss = compute_loss()
            if self._step != _OVERFLOWS_IN_STEP:
                return loss
            return loss * (_SCALE * (_TOO_LARGE if dist.get_rank() == 0 else 1))

        if isinstance(self._inner, RunsMicroBatches):
            self._inner.run_micro_batch(compute_scaled, is_last=is_last)
        else:
            compute_scaled().backward()

    def zero_grad(self) -> None:
        if self._step == _OVERFLOWS_IN_STEP:
            self._inner.wait()
            self._let_scaler_skip()
        self._step += 1
        self._inner.zero_grad()

    def _let_scaler_skip(self) -> None:
        scaler = torch.amp.GradScaler("cpu", init_scale=_SCALE)
        scaler.scale(torch.ones(()))  # which makes the scaler ready
        optimizer = torch.optim.SGD([_with_gradient(p) for p in self._parameters])
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() == _SCALE:
            raise OverlookedOverflowError("expected each rank to skip the step")


def _with_gradient(parameter: nn.Parameter) -> nn.Parameter:
    """Return a parameter that an optimizer may write, with this rank's gradient."""
    gradient: Any = parameter.grad
    local = gradient.to_local() if hasattr(gradient, "to_local") else gradient
    copy = nn.Parameter(torch.zeros_like(local))
    copy.grad = local.detach().clone()
    return copy
