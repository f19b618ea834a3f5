"""DeepSpeed 0.19.8, ZeRO-3: a layer that a step leaves out gets the gradient of the step before.

    pip install deepspeed==0.19.8
    python examples/findings/deepspeed_stale_gradient.py

torch and DeepSpeed alone, one process, CPU. Exits with 0 if it shows it.
"""

import os
import sys
import tempfile

os.environ |= {"LOCAL_RANK": "0", "DS_ACCELERATOR": "cpu"}

import deepspeed
import torch
import torch.distributed as dist


class Model(torch.nn.Module):
    """Two weights of 0, of which a step may leave out the second one."""

    def __init__(self) -> None:
        super().__init__()
        self.always = torch.nn.Linear(1, 1, bias=False)
        self.sometimes = torch.nn.Linear(1, 1, bias=False)
        for each in self.parameters():
            torch.nn.init.zeros_(each)

    def forward(self, x: torch.Tensor, *, has_both: bool) -> torch.Tensor:
        y = self.always(x)
        return (y + self.sometimes(x) if has_both else y).sum()


def train(has_both: list[bool], micro_batches: int) -> float:
    """Return the second weight after steps of SGD with lr 1: minus the sum of its gradients."""
    model = Model()
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        config={
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": micro_batches,
            "gradient_clipping": 0.0,
            "zero_allow_untested_optimizer": True,
            "zero_optimization": {"stage": 3},
        },
    )
    for each in has_both:
        engine.backward(engine(torch.ones(1, 1), has_both=each))
        engine.step()
    with deepspeed.zero.GatheredParameters([model.sometimes.weight]):
        return model.sometimes.weight.item()


def main() -> bool:
    dist.init_process_group(
        "gloo", init_method=f"file://{tempfile.mktemp()}", rank=0, world_size=1
    )
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # compile nothing
    left_out = train([True, False], micro_batches=1)
    # Of two micro-batches, each counts half. The second step uses it in its last one alone.
    used_late = train([True, True, False, True], micro_batches=2)
    print("expected: -1.0 and -1.5")
    print(f"actual:   {left_out} and {used_late}, no error")
    return (left_out, used_late) == (-2.0, -2.5)


if __name__ == "__main__":
    sys.exit(not main())
