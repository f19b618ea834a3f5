"""A small training step on the device, for the parts that measure one."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from syncverify.synchronizer import GradientSynchronizer

BUCKET_MIB = 1.0
_WIDTH, _DEPTH, _BATCH = 512, 6, 8


def model_on(device: torch.device) -> nn.Sequential:
    """Return linear layers with the same values at each call."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(_WIDTH, _WIDTH) for _ in range(_DEPTH))).to(device)


def input_on(device: torch.device) -> torch.Tensor:
    """Return a batch, the same at each call. Shape (8, 512)."""
    torch.manual_seed(1)
    return torch.randn(_BATCH, _WIDTH).to(device)


def step_of_ours(
    device: torch.device,
) -> tuple[Callable[[], None], GradientSynchronizer, nn.Module]:
    """Return a backward and its wait under our synchronizer, which is bound."""
    model, x = model_on(device), input_on(device)
    synchronizer = GradientSynchronizer([list(model.parameters())], BUCKET_MIB, 1)
    synchronizer.bind()

    def step() -> None:
        model(x).sum().backward()
        synchronizer.wait()

    return step, synchronizer, model


def step_of_ddp(device: torch.device) -> tuple[Callable[[], None], nn.Module]:
    """Return a backward under DDP, which waits at its end."""
    model, x = model_on(device), input_on(device)
    wrapped = DistributedDataParallel(
        model, bucket_cap_mb=BUCKET_MIB, gradient_as_bucket_view=True
    )
    return lambda: wrapped(x).sum().backward(), model
