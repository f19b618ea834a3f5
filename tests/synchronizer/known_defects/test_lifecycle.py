"""Windows that end early or late, and parameters that change after `bind()`."""

import pytest
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from syncverify.synchronizer import (
    GradientMismatchError,
    GradientSynchronizer,
    StepFailedError,
)
from tests.programs import parameter, value


def test_forwards_that_run_ahead_do_not_start_a_reduction(ranks, launches) -> None:
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
                    seen.append([each.rank for each in launches].count(rank))
            synchronizer.wait()
            return seen, value(a)

    assert ranks.run(2, program) == [([0] * 7 + [1], 11 * 255)] * 2


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
