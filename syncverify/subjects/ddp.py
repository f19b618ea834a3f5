"""torch's DistributedDataParallel as a subject, also with one option other than the default.

Each variant promises plain training steps, as `ddp` does, and the features in its file of
`contracts/`. The docstring of torch/nn/parallel/distributed.py takes no plain step away for any of
the options.

No other module imports the private function `_apply_optimizer_in_backward`. DDP takes the hooks
away that it registers, and calls the optimizers by itself, once a bucket has been reduced.

Source:
    https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html,
    https://github.com/pytorch/pytorch/pull/89194
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from syncverify.subjects.adapters import LOCAL_MEAN, LossModule, ModuleAdapter

with warnings.catch_warnings():
    # The package compiles its optimizers as it is imported, which torch deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch.distributed.optim import _apply_optimizer_in_backward

SUBJECTS = {
    "ddp": "DistributedDataParallelSubject",
    "ddp-bucket-view": "BucketViewSubject",
    "ddp-comm-hook": "CommHookSubject",
    "ddp-find-unused": "FindUnusedSubject",
    "ddp-static-graph": "StaticGraphSubject",
}
# Attributes that torch's function puts on each parameter.
_LEFT = ("_in_backward_optimizers", "_optimizer_classes", "_optimizer_kwargs")


class _Stepper(torch.optim.Optimizer):
    """An optimizer that calls a function with each of its parameters."""

    def __init__(
        self, parameters: list[nn.Parameter], update: Callable[[torch.Tensor], None]
    ) -> None:
        super().__init__(parameters, {})
        self._update = update

    @override
    def step(self, closure: Any = None) -> Any:
        """Call the function with each parameter."""
        for group in self.param_groups:
            for parameter in group["params"]:
                self._update(parameter)


class DistributedDataParallelSubject(ModuleAdapter):
    """Gives DDP the subject API.

    DDP averages over all ranks of one group, and knows neither DTensors nor groups of
    parameters. It learns of the last micro-batch from `no_sync`, and decides in forward
    whether the coming backward reduces, so it runs micro-batches itself.

    Steps may run on a stream different from that of the wrapping, and torch warns of it:
    DDP keeps AccumulateGrad nodes, which allocate gradients on the stream on which the nodes
    were made. That stream has to wait for readers of a gradient before the gradient is freed.
    """

    # The features of the contract are in contracts/ddp.toml.
    capabilities = replace(LOCAL_MEAN, overlaps_backward=True)
    options: ClassVar[Mapping[str, Any]] = {}
    _device_module: Any = None
    _wrapping_stream: Any = None
    _step: Callable[[torch.Tensor], None] | None = None

    def step_in_backward(self, step: Callable[[torch.Tensor], None]) -> None:
        """Have DDP call a function, as it calls torch's optimizers, from the next `bind()` on."""
        self._step = step

    @override
    def bind(self) -> None:
        self._device_module = torch.get_device_module(self.parameters[0].device)
        self._wrapping_stream = self._device_module.current_stream()
        if self._step is not None:
            _apply_optimizer_in_backward(
                _Stepper, self.trainable(), {"update": self._step}
            )
        super().bind()

    @override
    def wrap(self, module: LossModule) -> DistributedDataParallel:
        return DistributedDataParallel(
            module, bucket_cap_mb=self.bucket_size_mb, **self.options
        )

    @override
    def zero_grad(self) -> None:
        """Drop the gradients, as optimizers do.

        "You must manually ensure that any non-creation stream uses of a tensor are synced
        back to the creation stream before you deallocate the tensor": that is how
        `Tensor.record_stream` puts it, and torch's optimizers leave it to their caller.
        """
        # The optimizer has read gradients on the current stream. Their memory belongs to the
        # stream of the wrapping, which may reuse it as soon as they are freed.
        reader = self._device_module.current_stream()
        if reader != self._wrapping_stream:
            self._wrapping_stream.wait_stream(reader)
        for parameter in self.parameters:
            parameter.grad = None

    @override
    def unwrap(self) -> None:
        """Forget the optimizers in backward; DDP's hooks go with the wrapper."""
        for parameter in self.parameters:
            for name in vars(parameter).keys() & _LEFT:
                delattr(parameter, name)


class StaticGraphSubject(DistributedDataParallelSubject):
    """`static_graph=True`: learns in the first iteration the parameters of later ones.

    "The set of used and unused parameters will not change during the whole training loop":
    no plain step changes the set. The docstring does not mention `no_sync`, under which the
    option fails: see docs/findings.md.
    """

    options: ClassVar[Mapping[str, Any]] = {"static_graph": True}


class FindUnusedSubject(DistributedDataParallelSubject):
    """`find_unused_parameters=True`: walks the graph of each iteration."""

    options: ClassVar[Mapping[str, Any]] = {"find_unused_parameters": True}


class BucketViewSubject(DistributedDataParallelSubject):
    """`gradient_as_bucket_view=True`: gradients are views into buckets."""

    options: ClassVar[Mapping[str, Any]] = {"gradient_as_bucket_view": True}


class CommHookSubject(DistributedDataParallelSubject):
    """`register_comm_hook` with torch's own `allreduce_hook`.

    torch's other hooks compress gradients or leave parts out, and promise no exact sum.
    """

    @override
    def wrap(self, module: LossModule) -> DistributedDataParallel:
        wrapped = super().wrap(module)
        wrapped.register_comm_hook(dist.group.WORLD, allreduce_hook)
        return wrapped
