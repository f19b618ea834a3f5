"""DeepSpeed 0.19.8 refuses models that have a parameter without dims.

    pip install deepspeed==0.19.8
    LOCAL_RANK=0 DS_ACCELERATOR=cpu python examples/findings/deepspeed_scalar.py

torch and DeepSpeed alone, one process, CPU. Exits with 0 if it shows it.
"""

import os
import sys
import tempfile

os.environ |= {"LOCAL_RANK": "0", "DS_ACCELERATOR": "cpu"}

import deepspeed
import torch
import torch.distributed as dist

dist.init_process_group(
    "gloo", init_method=f"file://{tempfile.mktemp()}", rank=0, world_size=1
)
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # compile nothing


class Temperature(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.temperature = torch.nn.Parameter(torch.ones(()))


try:
    model = Temperature()
    deepspeed.initialize(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        config={
            "train_micro_batch_size_per_gpu": 1,
            "zero_allow_untested_optimizer": True,
            "zero_optimization": {"stage": 1},
        },
    )
except RuntimeError as error:
    print("expected: an engine, or an error that names the parameter")
    print(f"actual:   RuntimeError: {error}")
    sys.exit(0)
print("not shown")
sys.exit(1)
