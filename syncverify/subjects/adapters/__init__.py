"""Bases of adapters: they give the subject API to a synchronizer that has another API.

Note [Restored parameters]
A wrapped synchronizer without an `unbind()` leaves hooks, attributes and moved memory on the
parameters. Nothing of that is a defect: there is no call that promises to remove it. So
`bind()` records the parameters, and `unbind()` restores them. A synchronizer with a call
that cleans up is treated otherwise: the adapter makes the call in `unwrap()`, nothing is
restored after it, and the harness sees each thing that the call leaves behind. `bind()`
refuses a wrapped synchronizer that has `unbind()` in an adapter without `unwrap()`.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import nn
from typing_extensions import override

from syncverify.errors import SubjectError
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import MAX_ACCUMULATIONS
from syncverify.subjects.adapters.recorded import RecordedGlobals, RecordedParameter

# Plain training steps of local tensors, averaged over all ranks.
LOCAL_MEAN = Capabilities(
    reduction="mean", tensors="local", varying_accumulations=True, needs_data=True
)
# Contract of a synchronizer that has no `no_sync()`: each step is one backward.
_SEVERAL = (f"accumulations={count}" for count in range(2, MAX_ACCUMULATIONS + 1))
ONE_BACKWARD_A_STEP = replace(LOCAL_MEAN, outside=frozenset(_SEVERAL))
_BYTES_PER_ELEMENT = 4  # of float32


class LossModule(nn.Module):
    """Owns the parameters, and runs the forward that it gets as an argument."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__()
        self.parameter_list = nn.ParameterList(parameters)

    @override
    def forward(self, compute_loss: Callable[[], Any]) -> Any:
        return compute_loss()


class ParameterHolder:
    """Holds the arguments of a subject until `bind()`.

    The bucket size is in MiB, which most libraries call MB. `require_accumulations` is the number
    of micro-batches of the first step.
    """

    def __init__(
        self,
        param_groups: list[list[nn.Parameter]],
        bucket_size_mb: float,
        require_accumulations: int,
    ) -> None:
        self.param_groups = param_groups
        self.parameters = [parameter for group in param_groups for parameter in group]
        self.bucket_size_mb = bucket_size_mb
        self.require_accumulations = require_accumulations

    @property
    def bucket_numel(self) -> int:
        """Return the bucket size in elements of float32, at least 1."""
        return max(1, int(self.bucket_size_mb * 2**20) // _BYTES_PER_ELEMENT)

    def trainable(self) -> Iterator[nn.Parameter]:
        """Return the parameters that require a gradient."""
        return (parameter for parameter in self.parameters if parameter.requires_grad)


class Adapter(ParameterHolder):
    """Gives the subject API to a wrapped synchronizer; see the note in this module.

    A subclass defines `wrap()`, and of the other methods those in which the wrapped
    synchronizer differs. One training step calls, in this order: for each micro-batch
    `announce()`, and then `forward()` and `backward()`, both inside of `no_sync()` if the
    micro-batch is not the last one; then `synchronize()`; then `zero_grad()`.

    Attributes:
        capabilities: Contract of the wrapped synchronizer.
        state_of: Modules or classes with state of the process, which `unbind()` restores.
        wrapped: Result of `wrap()`, between `bind()` and `unbind()`.
    """

    capabilities: ClassVar[Capabilities] = LOCAL_MEAN
    state_of: ClassVar[tuple[Any, ...]] = ()
    wrapped: Any = None
    _recorded: Sequence[RecordedParameter | RecordedGlobals] = ()

    @abstractmethod
    def wrap(self, module: LossModule) -> Any:
        """Attach the synchronizer to the parameters of a module, and return it."""

    def unwrap(self) -> None:
        """Make the wrapped synchronizer clean up, if it can; then nothing is restored."""

    def announce(self, *, is_last: bool) -> None:
        """Tell the wrapped synchronizer whether the coming micro-batch is the last one."""

    def no_sync(self) -> AbstractContextManager[Any]:
        """Return the context of micro-batches that must not be reduced."""
        own: Callable[..., AbstractContextManager[Any]]
        own = getattr(self.wrapped, "no_sync", nullcontext)
        return own()

    def forward(self, compute_loss: Callable[[], Any]) -> Any:
        """Run the forward of a micro-batch, and return its loss."""
        return compute_loss()

    def backward(self, loss: torch.Tensor) -> None:
        """Run the backward of a micro-batch."""
        loss.backward()

    def synchronize(self) -> None:
        """Finish the reduction of a step, after its last backward."""

    def bind(self) -> None:
        """Record the parameters, and wrap them.

        Raises:
            SubjectError: The wrapped synchronizer has `unbind()` and the adapter no
                `unwrap()`, or state of the process has to be shared by ranks.
        """
        if self.state_of and not self.capabilities.needs_processes:
            raise SubjectError(
                f"{type(self).__name__}.state_of needs ranks that are processes; "
                "hint: derive from GlobalsAdapter, or declare needs_processes=True"
            )
        if self._restores():
            self._recorded = [
                *map(RecordedParameter, self.parameters),
                *map(RecordedGlobals, self.state_of),
            ]
        self.wrapped = self.wrap(LossModule(self.parameters))
        if self._restores() and hasattr(self.wrapped, "unbind"):
            raise SubjectError(
                f"{type(self).__name__} wraps {type(self.wrapped).__name__}, which has "
                "unbind(); hint: define unwrap() to call it"
            )

    def run_micro_batch(
        self,
        compute_loss: Callable[[], Any],
        *,
        is_last: bool,
        run_backward: Callable[[Any], None] | None = None,
    ) -> None:
        """Run forward and backward, reducing in the last micro-batch only."""
        self.announce(is_last=is_last)
        with nullcontext() if is_last else self.no_sync():
            (run_backward or self.backward)(self.forward(compute_loss))

    def evaluate(self, compute_loss: Callable[[], Any]) -> None:
        """Run a forward in eval mode; no backward follows."""
        has_modes = isinstance(self.wrapped, nn.Module)  # other wrappers have none
        if has_modes:
            self.wrapped.eval()
        self.forward(compute_loss)
        if has_modes:
            self.wrapped.train()

    def wait(self) -> None:
        """Finish the reduction of the step."""
        self.synchronize()

    def zero_grad(self) -> None:
        """Clear the gradients, by the wrapped synchronizer's own call if it has one."""
        own = getattr(self.wrapped, "zero_grad", None)
        if own is not None:
            own()
            return
        for parameter in self.parameters:
            parameter.grad = None

    def unbind(self) -> None:
        """Drop the wrapped synchronizer, and restore the parameters that it was given."""
        self.unwrap()
        self.wrapped = None
        for recorded in self._recorded:
            recorded.restore()
        self._recorded = []

    def _restores(self) -> bool:
        return type(self).unwrap is Adapter.unwrap


class HooksAdapter(Adapter):
    """Adapts a class that registers hooks on parameters; losses are computed beside it."""


class ModuleAdapter(Adapter):
    """Adapts a wrapper of a module, as DDP is: the forward runs through the wrapper.

    Micro-batches before the last one run in the wrapper's `no_sync()`, if it has one.
    """

    @override
    def forward(self, compute_loss: Callable[[], Any]) -> Any:
        return self.wrapped(compute_loss)


class RevealingOptimizer(torch.optim.Optimizer):
    """Sets each parameter to its gradient, in place of an update.

    A wrapper such as ZeRO hands each rank the gradients of a part of the parameters, and
    sends the parameters to the other ranks after the step. With this optimizer inside, the
    parameters that arrive are the reduced gradients, without rounding, whatever the wrapper
    keeps in between. `step()` ignores the options that wrappers set, such as a learning rate.
    """

    def __init__(self, params: Any, lr: float = 0.0, **defaults: Any) -> None:
        super().__init__(params, {"lr": lr, **defaults})

    @override
    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no closure
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.copy_(parameter.grad)


class OptimizerAdapter(Adapter):
    """Adapts a wrapper of an optimizer, as ZeRO is, around a `RevealingOptimizer`.

    The step turns parameters into reduced gradients, on all ranks. They become the
    gradients that the harness reads, and the parameters get their values back.
    """

    _left_by_step: Mapping[nn.Parameter, torch.Tensor | None] = MappingProxyType({})

    def step(self) -> None:
        """Reduce the gradients and run the step of the wrapped optimizer."""
        self.wrapped.step()

    @override
    @torch.no_grad()
    def synchronize(self) -> None:
        values = {parameter: parameter.clone() for parameter in self.trainable()}
        for parameter in values:
            parameter.zero_()  # a gradient that no rank has stays zero
        self.step()
        self._left_by_step = {parameter: parameter.grad for parameter in values}
        for parameter, value in values.items():
            parameter.grad = parameter.detach().clone()
            parameter.copy_(value)

    @override
    def zero_grad(self) -> None:
        # The wrapper may count on the gradients that it left, views of a buffer for example.
        for parameter, gradient in self._left_by_step.items():
            parameter.grad = gradient
        super().zero_grad()


class GlobalsAdapter(ModuleAdapter):
    """Adapts a wrapper of a module whose framework keeps state for a whole process.

    Ranks are processes, and a process plays one scenario after another, each in a new
    world. `state_of` lists the modules or classes that hold the state.
    """

    capabilities = replace(LOCAL_MEAN, needs_processes=True)
