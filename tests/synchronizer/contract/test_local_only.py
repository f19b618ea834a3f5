"""`bind()` refuses to reduce nothing at all on several ranks, unless the config says so."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from syncverify.synchronizer import (
    GradientSynchronizer,
    InvalidArgumentError,
    SynchronizerConfig,
)

MESSAGE = """\
no gradient would be reduced
  expected: a process group for ordinary parameters, which no mesh describes
  got:      config.process_group=None, 2 ranks, and no DTensor
  where:    rank 0 of 2
  hint: pass SynchronizerConfig(process_group=dist.group.WORLD), or the group of the \
data-parallel ranks; allow_local_only=True keeps all gradients local"""


def ordinary(*, requires_grad: bool = True) -> nn.Parameter:
    return nn.Parameter(torch.zeros(4), requires_grad=requires_grad)


def distributed(
    placement: Replicate | Shard, *, requires_grad: bool = True
) -> nn.Parameter:
    # torch keeps plans by mesh, also for a later test with an equal mesh on another rank: no
    # other test has this one.
    mesh = init_device_mesh("cpu", (1, 1, 1, dist.get_world_size()))
    placements = [Replicate()] * 3 + [placement]
    local = DTensor.from_local(torch.zeros(4), mesh, placements, run_check=False)
    return nn.Parameter(local, requires_grad=requires_grad)


def bind(parameters: list[nn.Parameter], **options: object) -> None:
    config = SynchronizerConfig(**options)
    GradientSynchronizer([parameters], 1, 1, config=config).bind()


def test_ordinary_parameters_without_a_group_are_refused(two_ranks: None) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        bind([ordinary(), ordinary()])
    assert str(caught.value) == MESSAGE


def test_a_frozen_dtensor_has_no_gradient_to_reduce(two_ranks: None) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^no gradient would be reduced"):
        bind([ordinary(), distributed(Replicate(), requires_grad=False)])


def test_a_refused_synchronizer_leaves_the_parameters_alone(two_ranks: None) -> None:
    weight = ordinary()
    synchronizer = GradientSynchronizer([[weight]], 1, 1)
    with pytest.raises(InvalidArgumentError):
        synchronizer.bind()
    assert weight.grad is None
    assert not weight._post_accumulate_grad_hooks
    assert repr(synchronizer).startswith("GradientSynchronizer(unbound")


def test_what_has_a_group_a_mesh_or_the_option_is_bound(two_ranks: None) -> None:
    bind([ordinary()], process_group=dist.group.WORLD)
    bind([ordinary()], allow_local_only=True)
    bind([ordinary(), distributed(Replicate())])
    bind([ordinary(), distributed(Shard(0))])
    bind([distributed(Shard(0))])


def test_nothing_to_train_is_nothing_to_reduce(two_ranks: None) -> None:
    bind([])
    bind([ordinary(requires_grad=False)])


def test_one_rank_reduces_nothing(one_rank: None) -> None:
    bind([ordinary()])


def test_without_a_default_group_nothing_is_reduced() -> None:
    bind([ordinary()])
