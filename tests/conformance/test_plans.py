"""Buckets, the ranks that share them, and models that differ between ranks."""

import pytest
import torch.distributed as dist

from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig
from tests.conformance.test_graphs import fail
from tests.conformance.training import (
    assert_equal,
    gradients,
    inputs_of,
    layers,
    mean_over_ranks,
    sum_over,
    two_layers,
)
from tests.conformance.wrappers import ours


def test_names_of_the_parameters_that_are_reduced(play) -> None:
    """Frozen parameters and those that are not listed have no place."""

    def program(_: int) -> None:
        model = layers(2, 2, 2)
        model[1].bias.requires_grad_(requires_grad=False)
        plan = ours(model, ignored=("0.weight",)).synchronizer.explain()
        named = [name for bucket in plan.buckets for name in bucket.parameters]
        assert sorted(named) == ["0.bias", "1.weight"]

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
