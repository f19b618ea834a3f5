"""How a step's window is shaped: `no_sync()`, `flush()`, `reset()`, `from_module()`."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from syncverify.synchronizer import (
    BucketNotReadyError,
    GradientSynchronizer,
    LateAccumulationError,
    ReplacedGradientError,
)
from tests.programs import accumulate, lines, parameter, value

KIB_MB = 2**-10


def plain() -> nn.Parameter:
    return nn.Parameter(torch.zeros(3))


def test_no_sync_accumulates_and_neither_counts_nor_launches(ranks, launches):
    def program(rank: int) -> list[float]:
        a = parameter(init_device_mesh("cpu", (2,)))
        found = []
        with GradientSynchronizer([[a]], 1, 1) as synchronizer:
            for step in range(2):
                with synchronizer.no_sync():
                    accumulate(a, 2**rank)
                    with synchronizer.no_sync():
                        accumulate(a, 10 * 2**rank)
                    accumulate(a, 100 * 2**rank)
                assert [each.rank for each in launches].count(rank) == step
                accumulate(a, 1000 * 2**rank)
                synchronizer.wait()
                found.append(value(a))
                synchronizer.zero_grad()
        return found

    assert ranks.run(2, program) == [[3333, 3333]] * 2


def test_a_backward_counts_by_where_it_is_called_not_by_its_forward() -> None:
    a = plain()
    with GradientSynchronizer([[a]], 1, 1) as synchronizer:
        with synchronizer.no_sync():
            loss = (a * 2).sum()
        loss.backward()
        synchronizer.wait()
        assert value(a) == 2


def test_gradients_from_no_sync_alone_are_not_those_that_count() -> None:
    a = plain()
    with GradientSynchronizer([[a]], 1, 1, parameter_names={a: "a"}) as synchronizer:
        with synchronizer.no_sync():
            accumulate(a, 1)
        with pytest.raises(BucketNotReadyError, match="got:      a 0"):
            synchronizer.wait()
        synchronizer.flush()
        synchronizer.wait()
        assert value(a) == 1


def test_no_sync_ends_with_an_error_inside() -> None:
    a = plain()
    with GradientSynchronizer([[a]], 1, 1) as synchronizer:
        with pytest.raises(ZeroDivisionError), synchronizer.no_sync():
            raise ZeroDivisionError
        accumulate(a, 1)
        synchronizer.wait()


def test_flush_reduces_what_came_and_ends_the_step(ranks, launches):
    def program(rank: int) -> list[float]:
        mesh = init_device_mesh("cpu", (2,))
        a, b = (parameter(mesh, numel=512) for _ in "ab")
        local, found = plain(), []
        group = [local, a, b]
        with GradientSynchronizer([group], KIB_MB, 3) as synchronizer:
            for _ in range(2):
                for each in (a, b, b, local):
                    accumulate(each, 2**rank)
                synchronizer.flush()
                synchronizer.flush()
                synchronizer.wait()
                synchronizer.wait()
                found += [value(a), value(b), value(local)]
                synchronizer.zero_grad()
            for _ in range(3):  # the next step requires all of them again
                for each in group:
                    accumulate(each, 2**rank)
            synchronizer.wait()
            found.append(value(a))
        return found

    assert ranks.run(2, program) == [
        [3, 6, 1, 3, 6, 1, 9],
        [3, 6, 2, 3, 6, 2, 9],
    ]
    assert [each.rank for each in launches].count(0) == 6


def test_a_gradient_after_flush_is_late() -> None:
    a = plain()
    with GradientSynchronizer([[a]], 1, 2, parameter_names={a: "a"}) as synchronizer:
        accumulate(a, 1)
        synchronizer.flush()
        with pytest.raises(LateAccumulationError) as caught:
            accumulate(a, 1)
        assert lines(caught) == [
            "a accumulated a gradient after flush()",
            "  expected: no gradient between flush() and synchronizer.zero_grad()",
            "  got:      accumulation 2 of a",
            "  where:    rank 0 of 1, bucket 0, ready",
            f"  hint: {LateAccumulationError.hint}",
        ]


def test_flush_refuses_a_replaced_gradient() -> None:
    a = plain()
    with GradientSynchronizer([[a]], 1, 2) as synchronizer:
        accumulate(a, 1)
        a.grad = None
        with pytest.raises(ReplacedGradientError):
            synchronizer.flush()


def test_a_synchronizer_from_a_module_names_its_parameters() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, bias=False))
    module[1].weight = module[0].weight  # tied: called by the first of its names
    with (
        GradientSynchronizer.from_module(module, 1, 1) as synchronizer,
        pytest.raises(BucketNotReadyError, match=r"got:      0.bias 0, 0.weight 0"),
    ):
        synchronizer.wait()


def test_a_synchronizer_from_a_module_may_have_groups() -> None:
    module = nn.Linear(2, 2)
    groups = [[module.weight], [module.bias]]
    made = GradientSynchronizer.from_module(module, 1, 3, param_groups=groups)
    with made as synchronizer, pytest.raises(BucketNotReadyError) as caught:
        synchronizer.wait()
    assert lines(caught)[2:4] == [
        "  got:      bias 0, weight 0",
        "  where:    rank 0 of 1, bucket 0, bucket 1",
    ]
