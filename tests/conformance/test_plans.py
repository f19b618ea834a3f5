"""Buckets, the ranks that share them, and models that differ between ranks."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from syncverify.synchronizer import (
    GradientSynchronizer,
    PlanMismatchError,
    SynchronizerConfig,
)
from tests.conformance.test_graphs import fail
from tests.conformance.training import (
    assert_equal,
    gradients,
    inputs_of,
    layers,
    mean_over_ranks,
    refused,
    sum_over,
    train_step,
    two_layers,
    whole_numbers,
)
from tests.conformance.wrappers import ours

BYTES_MB = 2**-20


def buckets(*shapes: tuple[int, torch.dtype], cap_bytes: int) -> list[list[str]]:
    """Return the buckets of parameters that are named by their places."""
    group = [nn.Parameter(torch.empty(n, dtype=dtype)) for n, dtype in shapes]
    planned = GradientSynchronizer(
        [group],
        cap_bytes * BYTES_MB,
        1,
        parameter_names={each: str(index) for index, each in enumerate(group)},
        config=SynchronizerConfig(process_group=dist.group.WORLD),
    ).explain()
    return [sorted(bucket.parameters) for bucket in planned.buckets]


OF_ONE_DTYPE = [(numel, torch.float32) for numel in (100, 200, 100, 50)]
OF_TWO_DTYPES = [(50, torch.float32), (25, torch.float64)] * 3


def test_buckets_are_full_and_of_one_dtype(play) -> None:
    """A bucket is at most as large as the limit, where a parameter is not larger."""

    def program(_: int) -> None:
        found = buckets(*OF_ONE_DTYPE, cap_bytes=400)
        assert found == [["3"], ["2"], ["1"], ["0"]]
        assert buckets(*OF_ONE_DTYPE, cap_bytes=2**20) == [["0", "1", "2", "3"]]
        found = buckets(*OF_TWO_DTYPES, cap_bytes=400)
        assert sorted(found) == [["0"], ["1"], ["2", "4"], ["3", "5"]]

    play(2, program)


def test_names_of_the_parameters_that_are_reduced(play) -> None:
    """Frozen parameters and those that are not listed have no place."""

    def program(_: int) -> None:
        model = layers(2, 2, 2)
        model[1].bias.requires_grad_(requires_grad=False)
        plan = ours(model, ignored=("0.weight",)).synchronizer.explain()
        named = [name for bucket in plan.buckets for name in bucket.parameters]
        assert sorted(named) == ["0.bias", "1.weight"]

    play(2, program)


def test_a_model_without_gradients_has_nothing_to_reduce(play) -> None:
    def program(_: int) -> None:
        with GradientSynchronizer.from_module(nn.Module(), 1, 1) as synchronizer:
            assert synchronizer.explain().buckets == ()

    play(2, program)


class Embedded(nn.Module):
    """An embedding of another width, or one layer more, on some ranks."""

    def __init__(self, width: int, *, longer: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(10, width)
        self.layer = nn.Linear(width, 1)
        if longer:
            self.last = nn.Linear(1, 1, bias=False)


def test_another_model_on_another_rank_is_refused(play) -> None:
    """The error names the first parameter with another shape, in the order of the model."""

    def program(rank: int) -> None:
        with refused(PlanMismatchError, "ranks disagree about words.weight"):
            ours(Embedded(500 if rank == 0 else 50))
        with refused(PlanMismatchError):
            ours(Embedded(50, longer=rank == 1))

    play(2, program)


class Proxied(nn.Module):
    """A layer, and one whose shape depends on the rank until it is replaced."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.first = nn.Linear(1, 1, bias=False)
        self.proxy = nn.Linear(1 if rank else 10, 10, bias=False)
        whole_numbers(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.proxy(self.first(x))


def test_a_proxy_that_is_not_listed_may_be_replaced(play) -> None:
    def program(rank: int) -> None:
        model = Proxied(rank)
        proxy = model.proxy.weight
        wrapped = ours(model, ignored=("proxy.weight",))
        model.proxy = whole_numbers(nn.Linear(1, 1), seed=1)

        def losses(each, owner):
            yield each(inputs_of(owner, 3, 1)).sum()

        for _ in range(3):
            expected = mean_over_ranks(model, losses)
            own = sum_over(model, losses, [rank])
            expected |= {n: own[n] for n in own if n.startswith("proxy")}
            train_step(wrapped, losses, rank)
            assert_equal(gradients(model), expected)
            wrapped.zero_grad()
            model.proxy.zero_grad()
        assert proxy.grad is None

    play(2, program)


@pytest.mark.long
def test_other_groups_one_after_the_other(play) -> None:
    """Also after a backward that failed while sums were in flight."""

    def losses(model, rank):
        yield model(inputs_of(rank, 3, 2)).sum()

    def program(rank: int) -> None:
        model = layers(2, 2, 2, 2)
        for ranks in ([0, 1, 2, 3], [0, 1], [1, 2, 3], [0, 1, 2, 3]):
            group = dist.new_group(ranks)
            if rank not in ranks:
                continue
            config = SynchronizerConfig(process_group=group)
            bound = GradientSynchronizer.from_module(model, 2**-16, 1, config=config)
            with bound as synchronizer:
                expected = sum_over(model, losses, ranks)
                for loss in losses(model, rank):
                    loss.backward()
                synchronizer.wait()
                assert_equal(gradients(model), expected)
                synchronizer.zero_grad()
                fail(model, rank)
                synchronizer.reset()

    play(4, program)


def test_a_failed_backward_of_a_model_with_an_unused_layer(play) -> None:
    def losses(model, rank):
        yield model(inputs_of(rank, 3, 10), both=False).sum()

    def program(rank: int) -> None:
        model = two_layers()
        wrapped = ours(model, unused="keep_none")
        expected = mean_over_ranks(model, losses)
        broken = inputs_of(rank, 3, 10, requires_grad=True)
        broken.register_hook(lambda _: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            model(broken * 1).sum().backward()
        wrapped.synchronizer.reset()
        for loss in losses(model, rank):
            loss.backward()
        wrapped.finish()
        assert_equal(gradients(model), expected)

    play(2, program)
