"""DeepSpeed's ZeRO stages 1 and 2 as subjects."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

# DeepSpeed looks for hardware while it is imported; parameters are on the CPU here.
os.environ.setdefault("DS_ACCELERATOR", "cpu")

import torch
import torch.distributed as dist
from torch import nn

from syncverify.features import ALL_BEYOND
from syncverify.subject import Capabilities
from syncverify.subjects.ddp import LossModule

try:
    import deepspeed

    # `initialize()` would import it, which takes seconds: too long for a rank at work.
    import deepspeed.runtime.zero.muon.muon_optimizer  # noqa: F401
    from deepspeed.utils import groups, safe_get_full_grad
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"deepspeed cannot be imported ({error.name} is missing); "
        "install it by `pip install deepspeed==0.19.8`"
    ) from error

_BYTES_PER_ELEMENT = 4  # DeepSpeed counts elements
_CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,  # its losses are divided by it
    "zero_allow_untested_optimizer": True,
    "fp16": {"enabled": False, "loss_scale": 1.0},  # or float16 has scaled gradients
}


class ZeroOneSubject:
    """Gives ZeRO stage 1 the subject API: optimizer state is sharded, gradients are not.

    DeepSpeed averages over all ranks: "averaged gradients" is its own word for what each
    rank keeps of them. Micro-batches run through its engine, which
    `set_gradient_accumulation_boundary` tells of the last one; `wait()` reads by
    `safe_get_full_grad`, the documented way to a whole gradient.

    It is outside of DeepSpeed's contract to live in a process with other ranks, and to
    have parameters without dims: it broadcasts parameters as bytes, as which those cannot
    be viewed.

    Args:
        param_groups: Parameters by group; regrouped by dtype, as ZeRO flattens groups.
        bucket_size_mb: Bucket size in MiB of float32; DeepSpeed counts elements.
        require_accumulations: Unused: the engine is told of the last micro-batch.

    Source:
        https://deepspeed.readthedocs.io/en/latest/zero3.html (debugging), and the docstring
        of `DeepSpeedEngine.set_gradient_accumulation_boundary` of 0.19.8.
    """

    stage: ClassVar[int] = 1
    capabilities = Capabilities(
        outside=ALL_BEYOND,
        reduction="mean",
        tensors="local",
        separate_grad_dtype=False,
        varying_accumulations=True,
        needs_data=True,
        scalars=False,
        needs_processes=True,
    )

    def __init__(
        self,
        param_groups: list[list[nn.Parameter]],
        bucket_size_mb: float,
        require_accumulations: int,
    ) -> None:
        self._parameters = [parameter for group in param_groups for parameter in group]
        elements = int(bucket_size_mb * 2**20) // _BYTES_PER_ELEMENT
        self._zero = {"stage": self.stage, "reduce_bucket_size": max(1, elements)}
        self._originals = [parameter.data for parameter in self._parameters]
        self._engine: Any = None

    def bind(self) -> None:
        """Make an engine, with an optimizer that would not move anything."""
        _forget_the_last_world()
        deepspeed.init_distributed(dist_backend="gloo", verbose=False)
        trainable = list(self._trainable())
        optimizer = torch.optim.SGD(
            [
                {"params": [p for p in trainable if p.dtype == dtype]}
                for dtype in dict.fromkeys(p.dtype for p in trainable)
            ],
            lr=0.0,
        )
        self._engine, *_ = deepspeed.initialize(
            model=LossModule(self._parameters),
            optimizer=optimizer,
            config={**_CONFIG, "zero_optimization": self._zero},
        )

    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        """Run forward and backward, at the boundary in the last micro-batch only."""
        self._engine.set_gradient_accumulation_boundary(is_last)
        self._engine.backward(self._engine(compute_loss))

    def wait(self) -> None:
        """Gather what DeepSpeed reduced: its backward returns with that complete."""
        for parameter in self._trainable():
            gradient = safe_get_full_grad(parameter)
            if gradient is not None:
                parameter.grad = gradient.to(parameter.dtype)

    def zero_grad(self) -> None:
        """Drop the gradients, by a step of an optimizer that moves nothing."""
        for parameter in self._parameters:
            parameter.grad = None
        self._engine.step()

    def unbind(self) -> None:
        """Destroy the engine, and take parameters out of its flat buffers."""
        self._engine.destroy()
        self._engine = None
        for parameter, data in zip(self._parameters, self._originals, strict=True):
            parameter.data = data
            parameter.grad = None

    def _trainable(self) -> Iterator[nn.Parameter]:
        return (parameter for parameter in self._parameters if parameter.requires_grad)


class ZeroTwoSubject(ZeroOneSubject):
    """ZeRO stage 2, which keeps a shard of the gradients as well.

    It therefore reduces in every micro-batch: "stage 2 partitions gradients", and
    `no_sync` "is incompatible with gradient partitioning logic of ZeRO stage 2", says the
    assertion in `DeepSpeedEngine.no_sync`.
    """

    stage: ClassVar[int] = 2
    capabilities = replace(ZeroOneSubject.capabilities, reduces_each_micro_batch=True)


def _forget_the_last_world() -> None:
    """Have DeepSpeed look at the world again, which it does once a process."""
    os.environ["LOCAL_RANK"] = str(dist.get_rank())  # as its launcher does
    # Otherwise it compiles collectives of its own for ranks of one machine.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.comm.comm.cdb = None
    for name, value in list(vars(groups).items()):
        if isinstance(value, dist.ProcessGroup):
            setattr(groups, name, None)
