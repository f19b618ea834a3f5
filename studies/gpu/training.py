"""A small training step on the device, for the parts that measure one."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from syncverify.synchronizer import GradientSynchronizer


class Size(NamedTuple):
    """The size of a model of linear layers.

    Attributes:
        width: Features of each layer.
        depth: Number of layers.
        batch: Samples of a batch.
        bucket_mib: Capacity of a bucket.
    """

    width: int
    depth: int
    batch: int
    bucket_mib: float


SMALL = Size(512, 6, 8, 1.0)
# On a GPU its kernels take longer than the host takes to queue them.
LARGE = Size(4096, 8, 4096, 128.0)


def model_on(device: torch.device, size: Size) -> nn.Sequential:
    """Return linear layers with the same values at each call."""
    torch.manual_seed(0)
    layers = (nn.Linear(size.width, size.width) for _ in range(size.depth))
    return nn.Sequential(*layers).to(device)


def input_on(device: torch.device, size: Size) -> torch.Tensor:
    """Return a batch, the same at each call. Shape (batch, width)."""
    torch.manual_seed(1)
    return torch.randn(size.batch, size.width).to(device)


class OurStep(NamedTuple):
    """A step under our synchronizer: backward, and the wait."""

    run: Callable[[], None]
    synchronizer: GradientSynchronizer
    model: nn.Module


class DdpStep(NamedTuple):
    """A step under DDP: backward, which waits at its end."""

    run: Callable[[], None]
    model: nn.Module


def step_of_ours(device: torch.device, size: Size = SMALL) -> OurStep:
    """Return a backward and its wait under our synchronizer, which is bound."""
    model, x = model_on(device, size), input_on(device, size)
    synchronizer = GradientSynchronizer([list(model.parameters())], size.bucket_mib, 1)
    synchronizer.bind()

    def step() -> None:
        model(x).sum().backward()
        synchronizer.wait()

    return OurStep(step, synchronizer, model)


def step_of_ddp(device: torch.device, size: Size = SMALL) -> DdpStep:
    """Return a backward under DDP, which waits at its end."""
    model, x = model_on(device, size), input_on(device, size)
    wrapped = DistributedDataParallel(
        model, bucket_cap_mb=size.bucket_mib, gradient_as_bucket_view=True
    )
    return DdpStep(lambda: wrapped(x).sum().backward(), model)
