"""Parameters that are other tensors than at `bind()`, behind the same Python objects."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate

from syncverify.synchronizer import (
    GradientMismatchError,
    GradientSynchronizer,
    SynchronizerConfig,
)

MODES = ["error", "zeros", "keep_none"]


def module_of_both() -> nn.Module:
    mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("dp",))
    module = nn.Module()
    whole = DTensor.from_local(torch.ones(4), mesh, [Replicate()])
    module.p, module.q = nn.Parameter(whole), nn.Parameter(torch.ones(2))
    return module


def backward(module: nn.Module) -> None:
    (module.p.to_local().sum() + module.q.sum()).backward()


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("unused", MODES)
@pytest.mark.parametrize("ends", ["wait", "flush"])
def test_an_exchanged_parameter_is_named(unused: str, ends: str) -> None:
    module = module_of_both()
    synchronizer = GradientSynchronizer(
        [[module.p, module.q]], 1, 1, config=SynchronizerConfig(unused=unused)
    )
    synchronizer.bind()
    module._apply(torch.clone)
    backward(module)
    with pytest.raises(GradientMismatchError, match="at group 0 parameter 0 ") as error:
        getattr(synchronizer, ends)()
    assert "unbind() before module.to()" in str(error.value)
    synchronizer.unbind()
    module.zero_grad()
    synchronizer.bind()
    backward(module)
    synchronizer.wait()
    assert module.p.grad.to_local().tolist() == [1] * 4


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("unused", MODES)
def test_a_parameter_with_other_memory_is_no_other_tensor(unused: str) -> None:
    parameter = nn.Parameter(torch.ones(2))
    synchronizer = GradientSynchronizer(
        [[parameter]], 1, 1, config=SynchronizerConfig(unused=unused)
    )
    synchronizer.bind()
    parameter.data = parameter.data.clone()
    parameter.sum().backward()
    synchronizer.wait()
    assert parameter.grad is not None
    assert parameter.grad.tolist() == [1, 1]
