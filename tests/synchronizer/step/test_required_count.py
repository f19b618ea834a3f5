"""The count of backwards is set by a call, and kept over `unbind()`, `bind()` and `reset()`."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from syncverify.synchronizer import (
    BucketNotReadyError,
    GradientSynchronizer,
    InvalidArgumentError,
    LifecycleError,
    StepFailedError,
    SynchronizerConfig,
)
from syncverify.synchronizer.contract.config import DEFAULT_CONFIG

UNUSED = ["error", "keep_none"]


def parameter(numel: int = 3) -> nn.Parameter:
    return nn.Parameter(torch.zeros(numel))


def without_count(
    *parameters: nn.Parameter, config: SynchronizerConfig = DEFAULT_CONFIG
) -> GradientSynchronizer:
    return GradientSynchronizer([[*parameters]], bucket_size_mb=1, config=config)


def play_step(sums: GradientSynchronizer, parameter: nn.Parameter, count: int) -> None:
    for number in range(count):
        if number:
            expected = f"require_accumulations={count}"
            with pytest.raises(BucketNotReadyError, match=expected):
                sums.wait()
        parameter.sum().backward()
    sums.wait()
    assert torch.equal(parameter.grad, torch.full((3,), float(count)))
    sums.zero_grad()


@pytest.mark.parametrize("is_first", [True, False], ids=["before bind", "after bind"])
def test_the_count_is_set_by_a_call_alone(*, is_first: bool) -> None:
    a = parameter()
    sums = without_count(a)
    for each in (sums.set_required_accumulations, lambda _: sums.bind())[
        :: 1 if is_first else -1
    ]:
        each(2)
    play_step(sums, a, 2)
    sums.set_required_accumulations(1)
    play_step(sums, a, 1)
    sums.unbind()


def backward(_: GradientSynchronizer, a: nn.Parameter) -> None:
    a.sum().backward()


def backward_that_counts_for_nothing(
    sums: GradientSynchronizer, a: nn.Parameter
) -> None:
    with sums.no_sync():
        a.sum().backward()


CALLS: dict[str, Callable[[GradientSynchronizer, nn.Parameter], object]] = {
    "backward()": backward,
    "backward() in no_sync()": backward_that_counts_for_nothing,
    "mark_ready()": lambda sums, a: sums.mark_ready(a),
    "flush()": lambda sums, _: sums.flush(),
    "wait()": lambda sums, _: sums.wait(),
}


@pytest.mark.parametrize("unused", UNUSED)
@pytest.mark.parametrize("call", CALLS)
def test_what_counts_gradients_is_refused_without_a_count(
    call: str, unused: str
) -> None:
    a = parameter()
    config = SynchronizerConfig(unused=unused)  # type: ignore[arg-type]  # a word of it
    with without_count(a, config=config) as sums:
        with pytest.raises(LifecycleError) as caught:
            CALLS[call](sums, a)
        name = call.split(" in ")[0]
        assert str(caught.value).splitlines() == [
            f"{name} was called before the required accumulations were set",
            "  expected: a number of backwards in a step, before its first backward",
            "  got:      no require_accumulations, and no set_required_accumulations()",
            "  where:    rank 0 of 1",
            (
                "  hint: call set_required_accumulations(count) before the first backward;"
                " after a backward without it, call synchronizer.zero_grad() as well"
            ),
        ]
        sums.set_required_accumulations(1)
        if "backward" in call:
            with pytest.raises(StepFailedError):
                sums.wait()
            sums.zero_grad()
        play_step(sums, a, 1)


def test_calls_that_count_nothing_need_no_count() -> None:
    a = parameter()
    with without_count(a) as sums:
        sums.zero_grad()
        assert sums.explain().buckets
        assert sums.logging_data()["buckets"]
        sums.reset()
        assert repr(sums) == "GradientSynchronizer(bound, require_accumulations=None)"


@pytest.mark.parametrize(
    "count", [None, 0, -1, 1.5, np.float64(1), True, np.bool_(1), "2"]
)
def test_a_count_that_is_none_is_refused_and_changes_nothing(count: object) -> None:
    a = parameter()
    with without_count(a) as sums:
        sums.set_required_accumulations(2)
        with pytest.raises(InvalidArgumentError, match="require_accumulations"):
            sums.set_required_accumulations(count)  # type: ignore[arg-type]  # on purpose
        play_step(sums, a, 2)
