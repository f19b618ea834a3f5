"""DeepSpeed 0.19.8, ZeRO-2: gradients of float32 parameters are rounded to bfloat16.

    pip install deepspeed==0.19.8
    python examples/findings/deepspeed_mixed_dtypes.py

torch and DeepSpeed alone, one process, CPU. Exits with 0 if it shows it.
"""

import os
import sys
import tempfile

os.environ |= {"LOCAL_RANK": "0", "DS_ACCELERATOR": "cpu"}

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.utils import safe_get_full_grad


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.narrow = torch.nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
        self.wide = torch.nn.Parameter(torch.zeros(2))

    def forward(self) -> torch.Tensor:
        return self.narrow.float().sum() + (self.wide * 257).sum()


def main() -> bool:
    dist.init_process_group(
        "gloo", init_method=f"file://{tempfile.mktemp()}", rank=0, world_size=1
    )
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # compile nothing
    model = Model()
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.SGD(
            [{"params": [model.narrow]}, {"params": [model.wide]}], lr=0.1
        ),
        config={
            "train_micro_batch_size_per_gpu": 1,
            "zero_allow_untested_optimizer": True,
            "zero_optimization": {"stage": 2},
        },
    )
    engine.backward(engine())
    gradient = safe_get_full_grad(model.wide).tolist()
    print("expected: [257.0, 257.0]")
    print(f"actual:   {gradient}, no error")
    return gradient == [256.0, 256.0]


if __name__ == "__main__":
    sys.exit(not main())
