"""Collectives move memory as it lies: a gradient that is not row-major has to be copied first."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from tests.programs import violations


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


class GathersRows(GathersAsItLies):
    """Sends rows."""

    def sent(self, local: torch.Tensor) -> torch.Tensor:
        return local.contiguous()


@pytest.mark.parametrize(
    ("subject", "memory_format", "is_wrong"),
    [
        (GathersAsItLies, "contiguous", False),
        (GathersAsItLies, "transposed", True),
        (GathersAsItLies, "channels_last", True),
        (GathersRows, "transposed", False),
        (GathersRows, "channels_last", False),
    ],
)
def test_a_gradient_that_is_not_row_major_is_sent_in_order(
    subject: type[Any], memory_format: str, *, is_wrong: bool
) -> None:
    weight = ParameterSpec("w", (2, 3, 2, 2), ("R",), memory_format=memory_format)
    scenario = Scenario(MeshSpec((2,), ("dp",)), (weight,), (1,), 2**20)
    violated = {each.property for each in violations(subject, scenario)}
    assert ("gradient_equals_reference" in violated) is is_wrong
