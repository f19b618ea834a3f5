"""torch's DistributedDataParallel as a subject."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from syncverify.subjects.adapters import LOCAL_MEAN, LossModule, ModuleAdapter
from syncverify.subjects.optimizer_in_backward import apply_in_backward, forget

SUBJECTS = {"ddp": "DistributedDataParallelSubject"}


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
            apply_in_backward([*self.trainable()], self._step)
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
        forget(self.parameters)
