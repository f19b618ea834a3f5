"""DeepSpeed's ZeRO stages 1 and 2 as subjects."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

# DeepSpeed looks for hardware on import; parameters are on the CPU here.
os.environ.setdefault("DS_ACCELERATOR", "cpu")

import torch
import torch.distributed as dist

from syncverify.subjects.adapter import LOCAL_MEAN, Adapter, LossModule

try:
    import deepspeed

    # `initialize()` would import it in the middle of a run, which takes seconds: the rank
    # would look as if it hung.
    import deepspeed.runtime.zero.muon.muon_optimizer  # noqa: F401
    from deepspeed.utils import groups, safe_get_full_grad
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"deepspeed cannot be imported ({error.name} is missing); "
        "install it by `pip install deepspeed==0.19.8`"
    ) from error

_CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,  # DeepSpeed divides losses by this number
    "zero_allow_untested_optimizer": True,
    "fp16": {
        "enabled": False,
        "loss_scale": 1.0,
    },  # otherwise float16 gradients are scaled
}


class ZeroOneSubject(Adapter):
    """Gives ZeRO stage 1 the subject API: optimizer state is sharded, gradients are not.

    DeepSpeed averages over all ranks: its source calls a rank's part "averaged gradients".
    Micro-batches run through its engine; `set_gradient_accumulation_boundary` announces the
    last one. `wait()` reads by `safe_get_full_grad`, the documented way to a whole gradient.

    Outside of its contract are several ranks in one process, and parameters without dims:
    DeepSpeed broadcasts parameters as bytes, and torch cannot view a scalar as bytes.
    Parameters are regrouped by dtype, since ZeRO flattens groups. Buckets are measured in
    elements.

    Source:
        https://deepspeed.readthedocs.io/en/latest/zero3.html (debugging), and the docstring
        of `DeepSpeedEngine.set_gradient_accumulation_boundary` of 0.19.8.
    """

    stage: ClassVar[int] = 1
    capabilities = replace(LOCAL_MEAN, scalars=False, needs_processes=True)
    _engine: Any = None

    def bind(self) -> None:
        """Make an engine, with an optimizer of learning rate 0."""
        _reset_globals()
        self._originals = [parameter.data for parameter in self._parameters]
        deepspeed.init_distributed(dist_backend="gloo", verbose=False)
        trainable = list(self._trainable())
        optimizer = torch.optim.SGD(
            [
                {"params": [p for p in trainable if p.dtype == dtype]}
                for dtype in dict.fromkeys(p.dtype for p in trainable)
            ],
            lr=0.0,
        )
        zero = {"stage": self.stage, "reduce_bucket_size": self._bucket_numel()}
        self._engine, *_ = deepspeed.initialize(
            model=LossModule(self._parameters),
            optimizer=optimizer,
            config={**_CONFIG, "zero_optimization": zero},
        )

    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        """Run forward and backward, at the boundary in the last micro-batch only."""
        self._engine.set_gradient_accumulation_boundary(is_last)
        self._engine.backward(self._engine(compute_loss))

    def wait(self) -> None:
        """Gather the reduced gradients; DeepSpeed's backward returns with them complete."""
        for parameter in self._trainable():
            gradient = safe_get_full_grad(parameter)
            if gradient is not None:
                parameter.grad = gradient.to(parameter.dtype)

    def zero_grad(self) -> None:
        """Drop the gradients, by an optimizer step of learning rate 0."""
        for parameter in self._parameters:
            parameter.grad = None
        self._engine.step()

    def unbind(self) -> None:
        """Destroy the engine, and move the parameters out of its flat buffers."""
        self._engine.destroy()
        self._engine = None
        for parameter, data in zip(self._parameters, self._originals, strict=True):
            parameter.data = data
            parameter.grad = None


class ZeroTwoSubject(ZeroOneSubject):
    """ZeRO stage 2, which keeps a shard of the gradients as well.

    It therefore reduces in every micro-batch: "stage 2 partitions gradients", and
    `no_sync` "is incompatible with gradient partitioning logic of ZeRO stage 2", says the
    assertion in `DeepSpeedEngine.no_sync`.
    """

    stage: ClassVar[int] = 2
    capabilities = replace(ZeroOneSubject.capabilities, reduces_each_micro_batch=True)


def _reset_globals() -> None:
    """Reset DeepSpeed's globals, which hold the groups of the process's first world.

    A worker process plays one scenario after another, each in a new world.
    """
    os.environ["LOCAL_RANK"] = str(dist.get_rank())  # as DeepSpeed's launcher does
    # Otherwise DeepSpeed compiles its own collectives for ranks of one machine.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.comm.comm.cdb = None
    for name, value in list(vars(groups).items()):
        if isinstance(value, dist.ProcessGroup):
            setattr(groups, name, None)
