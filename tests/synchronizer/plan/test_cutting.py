"""Where buckets end: small at both ends, full in between."""

import itertools
import math

import pytest
import torch
from torch import nn

from syncverify.synchronizer import GradientSynchronizer
from syncverify.synchronizer.plan.cutting import (
    FIRST_BUCKET_CAP_BYTES,
    TAIL_CAP_BYTES,
    cut,
)

KIB = 2**10
MIB = 2**20


def cut_kib(*sizes_kib: int, cap_kib: float) -> list[int]:
    return cut([size * KIB for size in sizes_kib], cap_kib * KIB)


def test_both_ends_are_as_large_as_torch_has_its_first_bucket() -> None:
    assert torch.distributed._DEFAULT_FIRST_BUCKET_BYTES == MIB
    assert FIRST_BUCKET_CAP_BYTES == TAIL_CAP_BYTES == MIB


def test_the_first_bucket_is_small_whatever_the_cap() -> None:
    assert cut_kib(512, 512, 512, 512, cap_kib=math.inf) == [2, 2]
    assert cut_kib(512, 513, 511, 512, cap_kib=math.inf) == [1, 1, 2]
    assert cut_kib(256, 256, 256, 256, cap_kib=512) == [2, 2]


def test_a_first_gradient_above_the_small_cap_is_alone() -> None:
    assert cut_kib(1025, 1, 1, cap_kib=4096) == [1, 2]


def test_the_last_bucket_leaves_a_small_tail() -> None:
    assert cut_kib(1024, 2048, 600, 600, 400, cap_kib=4096) == [1, 2, 2]
    assert cut_kib(1024, 2048, 600, 424, 600, cap_kib=4096) == [1, 2, 2]
    assert cut_kib(1024, 2048, 2048, cap_kib=4096) == [1, 1, 1]


def test_a_last_bucket_that_is_small_or_one_gradient_stays_whole() -> None:
    assert cut_kib(1024, 500, 524, cap_kib=4096) == [1, 2]
    assert cut_kib(1024, 5000, cap_kib=4096) == [1, 1]
    assert cut_kib(5000, cap_kib=4096) == [1]


def test_a_tail_has_elements() -> None:
    assert cut_kib(1024, 2048, 2048, 0, 0, cap_kib=4096) == [1, 1, 3]
    assert cut_kib(1024, 2048, 0, 0, cap_kib=4096) == [1, 3]
    assert cut_kib(0, 0, cap_kib=4096) == [2]


def test_buckets_between_are_filled_to_the_cap() -> None:
    assert cut_kib(*[1024] * 12, cap_kib=4096) == [1, 4, 4, 2, 1]


def test_nothing_is_cut_into_nothing() -> None:
    assert cut([], 1) == []


@pytest.mark.parametrize("cap_kib", [1, 1024, 3000])
def test_every_gradient_is_in_one_bucket_and_none_exceeds_the_cap(cap_kib) -> None:
    for sizes in itertools.product([0, 1, 900, 1500, 5000], repeat=5):
        counts = cut_kib(*sizes, cap_kib=cap_kib)
        assert sum(counts) == 5
        rest = iter(sizes)
        for index, count in enumerate(counts):
            bucket = list(itertools.islice(rest, count))
            cap = cap_kib if index else min(cap_kib, 1024)
            assert count == 1 or sum(bucket) <= cap or sum(map(bool, bucket)) == 1


def test_a_synchronizer_cuts_each_kind_of_gradient_at_both_ends() -> None:
    quarter = MIB // 4
    single = [nn.Parameter(torch.zeros(quarter)) for _ in range(5)]
    double = [nn.Parameter(torch.zeros(quarter).double()) for _ in range(2)]
    buckets = GradientSynchronizer([[*single, *double]], 25, 1).explain().buckets
    assert [(b.grad_dtype, b.payload_bytes // MIB) for b in buckets] == [
        ("float64", 2),
        ("float64", 2),
        ("float32", 1),
        ("float32", 3),
        ("float32", 1),
    ]
