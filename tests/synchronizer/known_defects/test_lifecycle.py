"""Windows that end early or late, and parameters that change after `bind()`."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from syncverify.synchronizer import (
    GradientMismatchError,
    GradientSynchronizer,
    StepFailedError,
)
from tests.programs import parameter, value


@pytest.fixture
def num_launches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The all-reduces of each of two ranks so far."""
    counts = [0, 0]
    all_reduce = dist.all_reduce

    def observed(tensor: torch.Tensor, **arguments: Any) -> Any:
        counts[dist.get_rank()] += 1
        return all_reduce(tensor, **arguments)

    monkeypatch.setattr(dist, "all_reduce", observed)
    return counts


def test_forwards_that_run_ahead_do_not_start_a_reduction(ranks, num_launches) -> None:
    """The last forward of a pipeline armed the reduction, and an older backward fired it.

    meta-pytorch/torchrec#4758
    """

    def program(rank: int) -> tuple[list[int], float]:
        a = parameter(init_device_mesh("cpu", (2,)))
        ahead, seen = [], []
        with GradientSynchronizer([[a]], 1, 8) as synchronizer:
            for micro_batch in range(8 + 3):
                if micro_batch < 8:
                    ahead.append((a.to_local() * 2**micro_batch * 10**rank).sum())
                if micro_batch >= 3:
                    ahead.pop(0).backward()
                    seen.append(num_launches[rank])
            synchronizer.wait()
            return seen, value(a)

    assert ranks.run(2, program) == [([0] * 7 + [1], 11 * 255)] * 2


@pytest.mark.parametrize("windows", [(4, 4, 4), (2, 1, 3)], ids=str)
def test_every_window_is_reduced_once_after_its_last_backward(
    ranks, num_launches, windows
) -> None:
    """A counter started elsewhere than it restarted, or knew the first window only.

    deepspeedai/DeepSpeed#6550, NovaSky-AI/SkyRL#2146, InfiniTensor/InfiniTrain#213
    """

    def program(rank: int) -> tuple[list[int], list[float]]:
        a = parameter(init_device_mesh("cpu", (2,)))
        launched, sums = [], []
        with GradientSynchronizer([[a]], 1, 1) as synchronizer:
            for num_backwards in windows:
                synchronizer.set_required_accumulations(num_backwards)
                for micro_batch in range(num_backwards):
                    (a.to_local() * 2**micro_batch * 100**rank).sum().backward()
                    launched.append(num_launches[rank])
                synchronizer.wait()
                sums.append(value(a))
                synchronizer.zero_grad()
        return launched, sums

    launched = [
        step + (backward == num_backwards - 1)
        for step, num_backwards in enumerate(windows)
        for backward in range(num_backwards)
    ]
    sums = [101 * (2**num_backwards - 1) for num_backwards in windows]
    assert ranks.run(2, program) == [(launched, sums)] * 2


def swap_data(module: nn.Linear) -> None:
    module.weight.data = module.weight.data.clone()


def swap_storage(module: nn.Linear) -> None:
    with torch.no_grad():
        module.weight.set_(module.weight.clone())


@pytest.mark.parametrize("swap", [swap_data, swap_storage])
def test_a_parameter_may_move_to_other_memory(swap) -> None:
    """Hooks on the node that accumulates were lost with the old storage.

    pytorch/pytorch#139742
    """
    module = nn.Linear(2, 3, bias=False)
    with GradientSynchronizer.from_module(module, 1, 2) as synchronizer:
        buffer = module.weight.grad.untyped_storage().data_ptr()
        (module.weight * 3).sum().backward()
        swap(module)
        (module.weight * 5).sum().backward()
        synchronizer.wait()
        assert torch.equal(module.weight.grad, torch.full((3, 2), 8.0))
        assert module.weight.grad.untyped_storage().data_ptr() == buffer


def test_a_module_that_is_converted_after_bind_is_no_silent_loss() -> None:
    """Gradients then came out in new memory, which was not reduced.

    pytorch/pytorch#104336
    """
    module = nn.Linear(2, 3, bias=False)
    with GradientSynchronizer.from_module(module, 1, 1) as synchronizer:
        module.double()
        module.weight.sum().backward()
        with pytest.raises(GradientMismatchError) as caught:
            synchronizer.wait()
        assert str(caught.value).splitlines()[:3] == [
            "the gradient of weight does not fit its view",
            "  expected: torch.float32 of shape (3, 2) on cpu",
            "  got:      torch.float64 of shape (3, 2) on cpu",
        ]
        with pytest.raises(StepFailedError):
            synchronizer.wait()


@pytest.mark.usefixtures("one_rank")
def test_a_module_of_dtensors_that_is_converted_after_bind_is_no_silent_loss() -> None:
    """A conversion makes new parameters of DTensors, and the old hooks are not called.

    pytorch/pytorch#104336, pytorch/pytorch#12603
    """
    module = nn.Linear(2, 3, bias=False)
    module.weight = parameter(init_device_mesh("cpu", (1,)))
    with GradientSynchronizer.from_module(module, 1, 1) as synchronizer:
        module.double()
        module.weight.to_local().sum().backward()
        with pytest.raises(GradientMismatchError, match="without hooks, at weight"):
            synchronizer.wait()
