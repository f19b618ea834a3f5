"""torch's DistributedDataParallel as a subject."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from syncverify.features import ALL_BEYOND
from syncverify.subject import Capabilities

# Its docs (torch/nn/parallel/distributed.py) leave these to the caller: under `no_sync`
# gradients are reduced in the next backward outside of it, and in no other; parameters are
# never to be changed once wrapped; those that get no gradient need
# `find_unused_parameters=True`, which is not the default; reentrant checkpoints that share a
# parameter, or several of a backward, need `static_graph`; one backward follows each
# forward. Nor do they speak of a backward more, which averages what is averaged and rounds
# it, nor of one that raises: after that reducer.cpp fails an assertion of its own. The
# reducer is not made for compiled autograd, nor torch.compile for buckets of a few bytes.
# Of create_graph it warns that it is not well supported: a bucket that once held a gradient
# with a graph refuses the next one without.
_OUTSIDE = (ALL_BEYOND - {"event", "launch", "readiness", "use", "backward"}) | {
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


class LossModule(nn.Module):
    """Owns the parameters and runs whatever forward it is handed."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__()
        self.parameter_list = nn.ParameterList(parameters)

    @override
    def forward(self, compute_loss: Callable[[], Any]) -> Any:
        return compute_loss()


class DistributedDataParallelSubject:
    """Gives DDP the subject API.

    DDP averages over all ranks of one group, knows plain tensors only, and decides in
    forward whether the coming backward reduces, so it runs micro-batches itself.

    Steps may run on another stream than the one that it was wrapped on. Torch warns of it,
    as DDP keeps AccumulateGrad nodes, which make gradients where they were made themselves;
    who drops such a gradient has to let that stream wait for its readers first.

    Args:
        param_groups: Parameters by group; DDP does not tell groups apart.
        bucket_size_mb: Bucket size in MiB, which DDP calls MB.
        require_accumulations: Unused: DDP learns of the last micro-batch from `no_sync`.
    """

    capabilities = Capabilities(
        outside=_OUTSIDE,
        reduction="mean",
        tensors="local",
        separate_grad_dtype=False,
        varying_accumulations=True,
        needs_data=True,
        overlaps_backward=True,
    )

    options: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        param_groups: list[list[nn.Parameter]],
        bucket_size_mb: float,
        require_accumulations: int,
    ) -> None:
        self._parameters = [parameter for group in param_groups for parameter in group]
        self._bucket_size_mb = bucket_size_mb
        self._module: DistributedDataParallel | None = None
        self._device_module: Any = None
        self._wrapped_on: Any = None

    def bind(self) -> None:
        """Wrap the parameters."""
        self._device_module = torch.get_device_module(self._parameters[0].device)
        self._wrapped_on = self._device_module.current_stream()
        self._wrap(LossModule(self._parameters))

    def _wrap(self, module: LossModule) -> None:
        self._module = DistributedDataParallel(
            module, bucket_cap_mb=self._bucket_size_mb, **self.options
        )

    def run_micro_batch(
        self,
        compute_loss: Callable[[], Any],
        *,
        is_last: bool,
        run_backward: Callable[[Any], None] = torch.Tensor.backward,
    ) -> None:
        """Run forward and backward, reducing in the last micro-batch only."""
        assert self._module is not None, "bind() comes first"
        with nullcontext() if is_last else self._module.no_sync():
            run_backward(self._module(compute_loss))

    def wait(self) -> None:
        """Do nothing: DDP's backward returns with the reduction complete."""

    def zero_grad(self) -> None:
        """Drop the gradients, as optimizers do.

        "You must manually ensure that any non-creation stream uses of a tensor are synced
        back to the creation stream before you deallocate the tensor": that is how
        `Tensor.record_stream` puts it, and torch's optimizers leave it to their caller.
        """
        reader = self._device_module.current_stream()
        if reader != self._wrapped_on:
            self._wrapped_on.wait_stream(reader)
        for parameter in self._parameters:
            parameter.grad = None

    def unbind(self) -> None:
        """Drop the wrapper, and its hooks with it."""
        self._module = None
