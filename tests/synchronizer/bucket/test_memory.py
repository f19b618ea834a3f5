"""The memory of a synchronizer, and that none is left behind."""

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig
from syncverify.synchronizer.hooks import bf16_error_feedback

MIB_BYTES = 2**20
OPTIONS: dict[str, dict[str, Any]] = {
    "all_reduce": {},
    "reduce_scatter": {"mode": "reduce_scatter"},
    "comm_hook": {"comm_hook": bf16_error_feedback},
    "checked": {"check_finite": True},
}


class NewStorages(TorchDispatchMode):
    """Keeps every storage that an operator returns, so that no address comes twice."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[int, torch.UntypedStorage] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        results = result if isinstance(result, tuple | list) else [result]
        for each in results:
            if isinstance(each, torch.Tensor):
                storage = each.untyped_storage()
                self.found.setdefault(storage.data_ptr(), storage)
        return result

    def sizes_above(self, limit_bytes: int) -> list[int]:
        return [s.nbytes() for s in self.found.values() if s.nbytes() > limit_bytes]


def model() -> list[nn.Parameter]:
    """100 weights of 256 KiB."""
    return [nn.Parameter(torch.zeros(2**16)) for _ in range(100)]


def step(sums: GradientSynchronizer, weights: list[nn.Parameter]) -> None:
    """Call all methods that a step of training may call."""
    for _ in range(2):
        torch.stack([weight[0] for weight in weights]).sum().backward()
    sums.wait(scale=0.5)
    sums.clip_grad_norm_(1)
    sums.scale_grads(2)
    sums.owned_grads()
    sums.zero_grad()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["all_reduce", "reduce_scatter", "checked"])
def test_there_is_one_buffer_a_bucket_and_no_second_copy(two_ranks, mode: str) -> None:
    weights = model()
    config = SynchronizerConfig(process_group=dist.group.WORLD, **OPTIONS[mode])
    with (
        NewStorages() as new,
        GradientSynchronizer([weights], 8, 2, config=config) as s,
    ):
        for _ in range(2):
            step(s, weights)
        planned = s.explain().buckets
    expected = [bucket.payload_bytes + bucket.padding_bytes for bucket in planned]
    # A gradient that autograd makes has 256 KiB.
    assert new.sizes_above(MIB_BYTES // 2) == expected
    # A small bucket first, and a small one last.
    assert expected == [MIB_BYTES, *[8 * MIB_BYTES] * 2, 7 * MIB_BYTES, MIB_BYTES]


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


ENDS: dict[str, Callable[[list[GradientSynchronizer]], object]] = {
    "unbind()": lambda held: held[0].unbind(),
    "no reference": lambda held: held.clear(),
}


@pytest.mark.parametrize("mode", OPTIONS)
@pytest.mark.parametrize("end", ENDS)
def test_no_hook_and_no_buffer_is_left(two_ranks, mode: str, end: str) -> None:
    weights = [nn.Parameter(torch.zeros(256)) for _ in range(2)]
    config = SynchronizerConfig(process_group=dist.group.WORLD, **OPTIONS[mode])
    held = [GradientSynchronizer([weights], 2**-10, 2, config=config)]
    with without_garbage_collection():
        held[0].bind()
        step(held[0], weights)
        alive = references(held[0])
        ENDS[end](held)
        kept = [name for name, reference in alive if reference() is not None]
    assert kept == []
    assert [each.grad for each in weights] == [None, None]
    assert not any(each._post_accumulate_grad_hooks for each in weights)


def interrupted(sums: GradientSynchronizer, weights: list[nn.Parameter]) -> None:
    """A backward that ends after its first gradient."""

    def interrupt(_: torch.Tensor) -> None:
        raise KeyError("interrupted")

    last = weights[0] * 1
    last.register_hook(interrupt)
    with pytest.raises(KeyError):
        (last.sum() + weights[1].sum()).backward()
    assert sums._sequence._backward.is_open


@pytest.mark.parametrize("what", ["sequence", "bucket"])
def test_what_an_error_keeps_alive_after_unbind_holds_no_memory(
    two_ranks, what
) -> None:
    """A traceback holds its frames as long as the caller holds the traceback."""
    weights = [nn.Parameter(torch.zeros(256)) for _ in range(2)]
    config = SynchronizerConfig(process_group=dist.group.WORLD, unused="keep_none")
    sums = GradientSynchronizer([weights], 1, 2, config=config)
    with without_garbage_collection():
        sums.bind()
        step(sums, weights)
        interrupted(sums, weights)
        alive = references(sums)
        kept = sums._sequence if what == "sequence" else sums._sequence.buckets[0]
        sums.unbind()
        left = {name for name, reference in alive if reference() is not None}
        assert left == {what}
        del kept


def references(sums: GradientSynchronizer) -> list[tuple[str, weakref.ref[Any]]]:
    sequence = sums._sequence
    found = [("sequence", weakref.ref(sequence))]
    for bucket in sequence.buckets:
        found.append(("bucket", weakref.ref(bucket)))
        found.append(("buffer", weakref.ref(bucket._buffer)))
        for view in bucket.views:
            found.append(("view", weakref.ref(view)))
            found.append(("gradient", weakref.ref(view.gradient)))
    return found
