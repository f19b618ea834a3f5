"""Collectives move memory as it lies: a gradient that is not row-major has to be copied first."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.scenario.scenario import Scenario
from tests.quality.planted.planted import VALUE, planted, right, training


def in_format(memory_format: str) -> Scenario:
    return training(shape=(2, 3, 2, 2), parameter={"memory_format": memory_format})


OUT_OF_ORDER = (in_format("transposed"), in_format("channels_last"))


@planted((VALUE,), scenarios=OUT_OF_ORDER, elsewhere=(in_format("contiguous"),))
class GathersAsItLies(PlainGrads):
    """Sums what it gathered, by the shape of the gradient."""

    def reduce(self, gradient: torch.Tensor) -> None:
        assert isinstance(gradient, DTensor)
        local = gradient.to_local().detach()
        group = gradient.device_mesh.get_group(0)
        parts = local.new_empty(group.size(), *local.shape)
        dist.all_gather_single(parts, self.sent(local), group=group)
        local.copy_(parts.sum(0))

    def sent(self, local: torch.Tensor) -> torch.Tensor:
        return local


@right(*OUT_OF_ORDER)
class GathersRows(GathersAsItLies):
    """Sends rows."""

    def sent(self, local: torch.Tensor) -> torch.Tensor:
        return local.contiguous()
