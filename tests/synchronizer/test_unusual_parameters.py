"""Parameters, numbers and stores that are unusual: right, or refused by name."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils import _pytree as pytree
from typing_extensions import override

from syncverify.synchronizer import (
    GradientMismatchError,
    GradientSynchronizer,
    InvalidArgumentError,
    PlanMismatchError,
    SynchronizerConfig,
    UnfrozenParameterError,
)
from syncverify.synchronizer.ranks.notes import Notes, _Binds


class Twins(torch.Tensor):
    """Wraps two tensors; an operator in place runs once for each of them."""

    one: torch.Tensor
    other: torch.Tensor

    @staticmethod
    def __new__(cls: Any, one: torch.Tensor, other: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, one.shape, dtype=one.dtype)

    def __init__(self, one: torch.Tensor, other: torch.Tensor) -> None:
        self.one, self.other = one, other

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["one", "other"], None

    @classmethod
    @override
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        given = args, kwargs or {}
        (args_one, more_one), (args_other, more_other) = (
            pytree.tree_map_only(Twins, lambda t: t.one, given),
            pytree.tree_map_only(Twins, lambda t: t.other, given),
        )
        results = func(*args_one, **more_one), func(*args_other, **more_other)
        is_wrapped = any(isinstance(each, Twins) for each in args)
        return Twins(*results) if is_wrapped else results[0]


class Plain(torch.autograd.Function):
    """A product whose gradient is plain, as quantized weights bring it."""

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor) -> torch.Tensor:
        return torch.ones(2)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 3


def twins() -> nn.Parameter:
    return nn.Parameter(Twins(torch.zeros(2), torch.zeros(2)))


def test_a_gradient_that_wraps_tensors_is_refused() -> None:
    parameter = twins()
    refused = pytest.raises(GradientMismatchError, match="wraps others")
    with GradientSynchronizer([[parameter]], 1, 1), refused:
        (parameter * 3).backward(Twins(torch.ones(2), torch.ones(2)))


def test_a_plain_gradient_of_a_parameter_that_wraps_tensors_is_right() -> None:
    parameter = twins()
    with GradientSynchronizer([[parameter]], 1, 1) as synchronizer:
        Plain.apply(parameter).sum().backward()
        synchronizer.wait()
        assert parameter.grad.tolist() == [3, 3]


@pytest.mark.parametrize("unused", ["zeros", "keep_none"])
def test_a_parameter_that_another_one_has_replaced_is_refused(unused: Any) -> None:
    """`load_state_dict(assign=True)` of a part: its gradients would stay local."""
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    config = SynchronizerConfig(unused=unused)
    bound = GradientSynchronizer.from_module(module, 1, 1, config=config)
    with bound as synchronizer:
        module(torch.ones(1, 2)).sum().backward()
        synchronizer.wait()
        synchronizer.zero_grad()
        module[1].load_state_dict(nn.Linear(2, 2).state_dict(), assign=True)
        module(torch.ones(1, 2)).sum().backward()
        with pytest.raises(UnfrozenParameterError, match=r"1\.bias, 1\.weight"):
            synchronizer.wait()


@pytest.mark.parametrize("set_to_none", [False, True])
def test_a_sparse_gradient_becomes_dense(*, set_to_none: bool) -> None:
    table = nn.Embedding(4, 2, sparse=True)
    with GradientSynchronizer([[table.weight]], 1, 1) as synchronizer:
        synchronizer.zero_grad(set_to_none=set_to_none)
        table(torch.tensor([1, 1])).sum().backward()
        synchronizer.wait()
        assert table.weight.grad.tolist() == [[0, 0], [2, 2], [0, 0], [0, 0]]


def test_unbinding_after_the_default_group_was_made_anew(one_rank: None) -> None:
    parameter = nn.Parameter(torch.zeros(2))
    config = SynchronizerConfig(process_group=dist.group.WORLD)
    synchronizer = GradientSynchronizer([[parameter]], 1, 1, config=config)
    synchronizer.bind()
    dist.destroy_process_group()
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    synchronizer.unbind()
    assert parameter.grad is None


def test_bound_in_inference_mode() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    with torch.inference_mode():
        synchronizer = GradientSynchronizer([[parameter]], 1, 1)
        synchronizer.bind()
    for _ in range(2):
        (parameter * 2).sum().backward()
        synchronizer.wait()
        assert parameter.grad.tolist() == [2, 2]
        with torch.inference_mode():
            synchronizer.zero_grad()
    synchronizer.unbind()


def test_a_parameter_without_a_shape_is_refused_by_place() -> None:
    synchronizer = GradientSynchronizer.from_module(nn.LazyLinear(3), 1, 1)
    with pytest.raises(InvalidArgumentError, match="group 0 parameter 0 has no shape"):
        synchronizer.bind()


def test_a_parameter_without_memory_is_refused_by_name_and_can_be_explained() -> None:
    module = nn.Linear(3, 3, device="meta")
    synchronizer = GradientSynchronizer.from_module(module, 1, 1)
    assert synchronizer.explain().buckets[0].payload_bytes == 12 * 4
    with pytest.raises(InvalidArgumentError, match="bias has no memory"):
        synchronizer.bind()


def test_a_parameter_that_is_appended_before_bind_counts() -> None:
    first, second = (nn.Parameter(torch.zeros(2)) for _ in range(2))
    group = [first]
    synchronizer = GradientSynchronizer([group], 1, 1)
    group.append(second)
    assert len(synchronizer.explain().buckets[0].parameters) == 2


def test_numbers_of_numpy_are_numbers() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    size_mb, required, factor = np.float32(0.5), np.int64(1), np.float32(2)
    with GradientSynchronizer([[parameter]], size_mb, required) as synchronizer:
        parameter.sum().backward()
        synchronizer.wait(scale=factor)
        assert parameter.grad.tolist() == [2, 2]
        synchronizer.zero_grad()
        synchronizer.set_required_accumulations(np.int32(2))


@pytest.mark.long
def test_a_peer_that_does_not_bind_is_named_with_a_file_store(tmp_path: Path) -> None:
    """A file store raises a plain RuntimeError when its time is over."""
    store = dist.FileStore(str(tmp_path / "store"), 2)
    store.set_timeout(timedelta(milliseconds=10))
    opened = Notes(store, "binds", rank=0, peers=[1], audience={1}, binds=_Binds())
    with pytest.raises(PlanMismatchError, match="rank 1 did not call bind"):
        opened.read("plan", 1, call="bind()")


def test_zeros_of_a_parameter_that_was_cast_are_refused_by_name() -> None:
    model = nn.Linear(2, 1)
    with GradientSynchronizer.from_module(model, 1, 1) as synchronizer:
        model(torch.ones(2)).backward()
        synchronizer.wait()
        model.double()
        with pytest.raises(GradientMismatchError) as caught:
            synchronizer.zero_grad()
        headline, expected, got, *_ = str(caught.value).splitlines()
        assert headline == "bias was changed after bind()"
        assert expected == "  expected: torch.float32 of shape (1,) on cpu"
        assert got == "  got:      torch.float64 of shape (1,) on cpu"
        model.float()
        synchronizer.zero_grad()
        model(torch.ones(2)).backward()
        synchronizer.wait()
        assert model.weight.grad.tolist() == [[1, 1]]
