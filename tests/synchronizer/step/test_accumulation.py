"""One process: views, counting, repairs and refusals."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from syncverify.synchronizer import (
    GradientMismatchError,
    GradientSynchronizer,
    LateAccumulationError,
    ReplacedGradientError,
    StepFailedError,
    SynchronizerConfig,
)
from tests.programs import accumulate, lines


def parameter(*shape: int, dtype: torch.dtype = torch.float32) -> nn.Parameter:
    return nn.Parameter(torch.zeros(shape, dtype=dtype))


def test_gradients_accumulate_in_the_gradient_dtype() -> None:
    a = parameter(4, dtype=torch.bfloat16)
    a.grad_dtype = torch.float32
    with GradientSynchronizer([[a]], 1, 3) as synchronizer:
        for value in (256, 1, 1):  # in bfloat16 256 + 1 is 256
            accumulate(a, value)
        synchronizer.wait()
        assert a.grad is not None
        assert torch.equal(a.grad, torch.full((4,), 258.0))


def test_an_existing_gradient_is_kept() -> None:
    a = parameter(3)
    accumulate(a, 5)
    with GradientSynchronizer([[a]], 1, 1) as synchronizer:
        assert torch.equal(a.grad, torch.full((3,), 5.0))
        accumulate(a, 1)
        synchronizer.wait()
        assert torch.equal(a.grad, torch.full((3,), 6.0))


def test_an_existing_gradient_that_does_not_fit_leaves_nothing_bound() -> None:
    a, b = parameter(3), parameter(2)
    a.grad_dtype = None
    a.grad = torch.ones(3, dtype=torch.float64)
    b.grad = existing = torch.ones(2)
    synchronizer = GradientSynchronizer([[a, b]], 1, 1)
    with pytest.raises(GradientMismatchError) as caught:
        synchronizer.bind()
    assert lines(caught) == [
        "the gradient of group 0 parameter 0 of shape (3,) does not fit its view",
        "  expected: torch.float32 of shape (3,) on cpu",
        "  got:      torch.float64 of shape (3,) on cpu",
        "  where:    rank 0 of 1",
        f"  hint: {GradientMismatchError.hint}",
    ]
    assert b.grad is existing
    accumulate(b, 1)  # no hook is left
    a.grad = None
    synchronizer.bind()
    synchronizer.unbind()


def set_to_none(a: nn.Parameter) -> None:
    a.grad = None


def assign_another(a: nn.Parameter) -> None:
    a.grad = torch.zeros(3)


def swap_storage(a: nn.Parameter) -> None:
    a.grad.data = torch.zeros(3)


@pytest.mark.parametrize("replace", [set_to_none, assign_another, swap_storage])
def test_a_replaced_gradient_is_taken_over_by_the_next_backward(replace) -> None:
    a = parameter(3)
    with GradientSynchronizer([[a]], 1, 2) as synchronizer:
        buffer = a.grad.untyped_storage().data_ptr()
        accumulate(a, 7)
        replace(a)
        accumulate(a, 1)
        synchronizer.wait()
        assert torch.equal(a.grad, torch.ones(3)), "as in torch, the old sum is gone"
        assert a.grad.untyped_storage().data_ptr() == buffer


def test_one_accumulation_too_many_is_refused_and_fails_the_step() -> None:
    a, b = parameter(3), parameter(3)
    names = {a: "a", b: "b"}
    with GradientSynchronizer([[a, b]], 1, 1, parameter_names=names) as synchronizer:
        accumulate(a, 1)
        with pytest.raises(LateAccumulationError) as caught:
            accumulate(a, 1)
        assert lines(caught) == [
            "a accumulated too many gradients",
            "  expected: 1 accumulations (require_accumulations=1)",
            "  got:      accumulation 2 of a",
            "  where:    rank 0 of 1, bucket 0, accumulating",
            f"  hint: {LateAccumulationError.hint}",
        ]
        for failing in (lambda: accumulate(b, 1), synchronizer.wait):
            with pytest.raises(StepFailedError) as caught:
                failing()
        assert lines(caught) == [
            "the step went on after an error",
            "  expected: synchronizer.zero_grad() or unbind() after an error",
            "  got:      gradients that an earlier error made unusable",
            "  where:    rank 0 of 1",
            "  hint: call synchronizer.zero_grad() on every rank, or reset() or unbind() if it refuses",
        ]
        synchronizer.zero_grad()
        accumulate(a, 1)
        accumulate(b, 2)
        synchronizer.wait()
        assert torch.equal(b.grad, torch.full((3,), 2.0))


@pytest.mark.parametrize("replace", [set_to_none, assign_another, swap_storage])
def test_a_gradient_replaced_before_wait_is_refused_by_name(two_ranks, replace) -> None:
    a = parameter(3)
    config = SynchronizerConfig(process_group=dist.group.WORLD)
    with GradientSynchronizer(
        [[a]], 1, 1, parameter_names={a: "a"}, config=config
    ) as synchronizer:
        accumulate(a, 1)
        replace(a)
        with pytest.raises(ReplacedGradientError) as caught:
            synchronizer.wait()
        assert lines(caught) == [
            "a gradient was replaced after the last backward and before wait()",
            "  expected: every .grad to be the view that is being summed",
            "  got:      another .grad at a",
            "  where:    rank 0 of 2, bucket 0",
            "  hint: assign to .grad after wait() only",
        ]
        with pytest.raises(StepFailedError):
            synchronizer.wait()
        synchronizer.reset()
        accumulate(a, 3)
        synchronizer.wait()
        assert torch.equal(a.grad, torch.full((3,), 3.0))


def test_a_gradient_that_nobody_sums_may_be_replaced_before_wait_but_not_removed() -> (
    None
):
    a = parameter(3)
    with GradientSynchronizer([[a]], 1, 1, parameter_names={a: "a"}) as synchronizer:
        accumulate(a, 1)
        a.grad = torch.full((3,), 5.0)
        synchronizer.wait(scale=2)
        assert torch.equal(a.grad, torch.full((3,), 10.0))
        synchronizer.zero_grad()
        accumulate(a, 1)
        a.grad = None
        with pytest.raises(ReplacedGradientError) as caught:
            synchronizer.wait()
        assert lines(caught)[2:4] == [
            "  got:      None at a",
            "  where:    rank 0 of 1, bucket 0",
        ]
        synchronizer.zero_grad()


def test_wait_twice_is_harmless_even_if_gradients_were_replaced_between() -> None:
    a = parameter(3)
    with GradientSynchronizer([[a]], 1, 1) as synchronizer:
        accumulate(a, 1)
        synchronizer.wait()
        a.grad = torch.full((3,), 9.0)
        synchronizer.wait()
        assert torch.equal(a.grad, torch.full((3,), 9.0))
