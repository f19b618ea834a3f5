"""Binding, unbinding, arguments and leftovers of a synchronizer."""

import math
import pickle
import weakref

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from syncverify import simulate
from syncverify.synchronizer import (
    GradientSynchronizer,
    InvalidArgumentError,
    LifecycleError,
    UnfrozenParameterError,
)
from tests.programs import accumulate, lines
from tests.programs import parameter as replicated


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(shape))


@pytest.mark.parametrize("size", [0, -math.inf, math.nan, True, "1"])
def test_a_bucket_size_that_is_no_positive_number_is_refused(size) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        GradientSynchronizer([], size, 1)
    assert lines(caught) == [
        "bucket_size_mb is not a number of MiB above 0",
        "  expected: a number of MiB above 0",
        f"  got:      bucket_size_mb={size!r}",
        "  where:    rank 0 of 1",
        "  hint: see the docstring of GradientSynchronizer",
    ]


def test_bucket_size_is_in_mib() -> None:
    quarter = [parameter(2**16) for _ in range(4)]  # 256 KiB each
    with GradientSynchronizer([quarter], 0.5, 1):
        storages = {p.grad.untyped_storage().data_ptr() for p in quarter}
        assert len(storages) == 2
    with GradientSynchronizer([quarter], math.inf, 1):
        assert len({p.grad.untyped_storage().data_ptr() for p in quarter}) == 1


def test_unbind_restores_plain_backward_and_may_be_repeated() -> None:
    a = parameter(3)
    synchronizer = GradientSynchronizer([[a]], 1, 1)
    synchronizer.unbind()
    synchronizer.bind()
    buffer, kept = weakref.ref(a.grad), synchronizer._sequence
    a.sum().backward()
    synchronizer.unbind()
    synchronizer.unbind()
    assert kept is not None, "as the traceback of an error may keep it"
    assert a.grad is None
    assert buffer() is None
    assert not a._post_accumulate_grad_hooks
    for _ in range(3):
        a.sum().backward()
    assert torch.equal(a.grad, torch.full((3,), 3.0))


def test_unbind_leaves_a_gradient_that_the_user_assigned() -> None:
    a = parameter(3)
    with GradientSynchronizer([[a]], 1, 1):
        a.grad = mine = torch.ones(3)
    assert a.grad is mine


def test_an_exception_in_the_context_waits_for_no_sum_that_a_peer_has_not_begun() -> (
    None
):
    def program(rank: int) -> bool:
        a = replicated(init_device_mesh("cpu", (2,)), numel=3)

        def fail() -> None:
            with GradientSynchronizer([[a]], 1, 1):
                if rank == 0:
                    accumulate(a, 1)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        return a.grad is None

    # The ranks disagree about the sum, which the simulation tells; none waits for the other.
    assert simulate(program, ranks=2, device="cpu").results == (True, True)


def test_errors_survive_pickling() -> None:
    error = LifecycleError("headline", expected="x", got="y", where="z")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is LifecycleError
    assert str(again) == str(error)


@pytest.mark.parametrize("end", ["wait", "flush"])
def test_a_parameter_that_is_unfrozen_is_refused_until_the_next_bind(end) -> None:
    trained, frozen = parameter(2), parameter(3)
    frozen.requires_grad_(False)
    synchronizer = GradientSynchronizer(
        [[trained, frozen]], 1, 1, parameter_names={frozen: "head"}
    )
    synchronizer.bind()
    frozen.requires_grad_(True)
    (trained.sum() + frozen.sum()).backward()
    with pytest.raises(UnfrozenParameterError) as caught:
        getattr(synchronizer, end)()
    assert lines(caught)[:3] == [
        f"a parameter was unfrozen after bind() and before {end}()",
        "  expected: requires_grad as it was at bind()",
        "  got:      requires_grad=True at head",
    ]
    synchronizer.reset()
    (trained.sum() + 2 * frozen.sum()).backward()
    synchronizer.wait()
    assert frozen.grad.tolist() == [2, 2, 2]
    frozen.requires_grad_(False)
    synchronizer.unbind()
