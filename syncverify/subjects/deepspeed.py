"""DeepSpeed's ZeRO stages 1 and 2 as subjects."""

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar

# DeepSpeed looks for hardware on import; parameters are on the CPU here.
os.environ.setdefault("DS_ACCELERATOR", "cpu")

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.subjects.adapters import LOCAL_MEAN, LossModule, ModuleAdapter
from syncverify.subjects.built_in import missing_package

SUBJECTS = {"deepspeed-zero1": "ZeroOneSubject", "deepspeed-zero2": "ZeroTwoSubject"}
PACKAGE = "deepspeed"

try:
    import deepspeed

    # `initialize()` would import it in the middle of a run, which takes seconds: the rank
    # would look as if it hung.
    import deepspeed.runtime.zero.muon.muon_optimizer  # noqa: F401
    from deepspeed.utils import groups, safe_get_full_grad
except ModuleNotFoundError as error:
    raise missing_package(PACKAGE, error, options="") from error

_CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,  # DeepSpeed divides losses by this number
    "zero_allow_untested_optimizer": True,
    # Otherwise float16 gradients are scaled.
    "fp16": {"enabled": False, "loss_scale": 1.0},
}


class ZeroOneSubject(ModuleAdapter):
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
    capabilities = replace(
        LOCAL_MEAN, scalars=False, needs_processes=True, owns_parameters=True
    )

    @override
    def wrap(self, module: LossModule) -> Any:
        """Make an engine, with an optimizer of learning rate 0."""
        _reset_globals()
        deepspeed.init_distributed(dist_backend="gloo", verbose=False)
        trainable = list(self.trainable())
        optimizer = torch.optim.SGD(
            [
                {"params": [p for p in trainable if p.dtype == dtype]}
                for dtype in dict.fromkeys(p.dtype for p in trainable)
            ],
            lr=0.0,
        )
        zero = {"stage": self.stage, "reduce_bucket_size": self.bucket_numel}
        engine, *_ = deepspeed.initialize(
            model=module,
            optimizer=optimizer,
            config={**_CONFIG, "zero_optimization": zero},
        )
        return engine

    @override
    def announce(self, *, is_last: bool) -> None:
        self.wrapped.set_gradient_accumulation_boundary(is_last)

    @override
    def no_sync(self) -> AbstractContextManager[Any]:
        return nullcontext()  # of DeepSpeed's two ways, `announce()` takes the other

    @override
    def backward(self, loss: torch.Tensor) -> None:
        self.wrapped.backward(loss)

    @override
    def synchronize(self) -> None:
        """Gather the reduced gradients; DeepSpeed's backward returns with them complete."""
        for parameter in self.trainable():
            gradient = safe_get_full_grad(parameter)
            if gradient is not None:
                parameter.grad = gradient.to(parameter.dtype)

    @override
    def zero_grad(self) -> None:
        """Drop the gradients, by an optimizer step of learning rate 0."""
        for parameter in self.parameters:
            parameter.grad = None
        self.wrapped.step()

    @override
    def unbind(self) -> None:
        """Destroy the engine; then the parameters are moved out of its flat buffers."""
        self.wrapped.destroy()
        super().unbind()


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
