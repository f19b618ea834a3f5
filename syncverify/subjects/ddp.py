"""torch's DistributedDataParallel as a subject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from syncverify.adapters import LOCAL_MEAN, LossModule, ModuleAdapter

# Outside of DDP's contract, by its docs (torch/nn/parallel/distributed.py):
# - fewer backwards than agreed: gradients of `no_sync` are reduced only in the next backward
#   outside of it;
# - changes of parameters after wrapping;
# - parameters without a gradient, which need `find_unused_parameters=True`;
# - reentrant checkpoints, which need `static_graph` if they share a parameter or if one
#   backward has several of them;
# - two backwards over one forward;
# - `create_graph`, with a warning that it is not well supported: a bucket that once held a
#   gradient with a graph refuses the next gradient without.
# Not mentioned in its docs:
# - one backward more than agreed: it averages averaged gradients again, and rounds;
# - a backward that raises: afterwards an assertion in reducer.cpp fails;
# - compiled autograd, and `torch.compile` with buckets of a few bytes.
_OUTSIDE = frozenset(
    {
        "event=missing_backward",
        "event=tail",
        "event=extra_backward",
        "event=raise_in_backward",
        "event=freeze",
        "event=cast",
        "event=move",
        "use=checkpointed_reentrant",
        "use=checkpointed_and_not",
        "use=checkpointed_nested",
        "use=compiled_region",
        "backward=reentrant",
        "backward=deep_reentrant",
        "backward=create_graph",
        "backward=twice_over_one_graph",
        "backward=compiled_autograd",
    }
)
_FEATURES = frozenset({"event", "launch", "readiness", "use", "backward"})


class DistributedDataParallelSubject(ModuleAdapter):
    """Gives DDP the subject API.

    DDP averages over all ranks of one group, and knows neither DTensors nor groups of
    parameters. It learns of the last micro-batch from `no_sync`, and decides in forward
    whether the coming backward reduces, so it runs micro-batches itself.

    Steps may run on another stream than the stream of the wrapping, and torch warns of it:
    DDP keeps AccumulateGrad nodes, which allocate gradients on the stream on which the nodes
    were made. That stream has to wait for readers of a gradient before the gradient is freed.
    """

    capabilities = replace(
        LOCAL_MEAN, features=_FEATURES, outside=_OUTSIDE, overlaps_backward=True
    )
    options: ClassVar[Mapping[str, Any]] = {}
    _device_module: Any = None
    _wrapping_stream: Any = None

    @override
    def bind(self) -> None:
        self._device_module = torch.get_device_module(self.parameters[0].device)
        self._wrapping_stream = self._device_module.current_stream()
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
        """Do nothing: DDP's hooks go with the wrapper, and nothing may be left."""
