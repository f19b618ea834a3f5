"""Where buckets end: small at both ends, full in between."""

import itertools
import math

import pytest
import torch
from torch import nn

from syncverify.synchronizer import GradientSynchronizer
from syncverify.synchronizer.plan.cutting import cut
from syncverify.synchronizer.plan.readiness import with_unseen_last

KIB = 2**10
MIB = 2**20


def cut_kib(*sizes_kib: int, cap_kib: float) -> list[int]:
    return cut([size * KIB for size in sizes_kib], cap_kib * KIB)


@pytest.mark.parametrize(
    ("sizes_kib", "cap_kib", "counts"),
    [
        # The first bucket is small whatever the cap, or one gradient.
        ((512, 513, 511, 512), math.inf, [1, 1, 2]),
        ((256, 256, 256, 256), 512, [2, 2]),
        ((1025, 1, 1), 4096, [1, 2]),
        # The last bucket leaves a small tail, unless it is small or one gradient.
        ((1024, 2048, 600, 600, 400), 4096, [1, 2, 2]),
        ((1024, 2048, 2048), 4096, [1, 1, 1]),
        ((1024, 500, 524), 4096, [1, 2]),
        ((1024, 5000), 4096, [1, 1]),
        ((5000,), 4096, [1]),
        # A tail has elements.
        ((1024, 2048, 2048, 0, 0), 4096, [1, 1, 3]),
        ((0, 0), 4096, [2]),
        # Buckets between are filled to the cap.
        ([1024] * 12, 4096, [1, 4, 4, 2, 1]),
        ((), 1, []),
    ],
)
def test_buckets_are_small_at_both_ends_and_full_between(
    sizes_kib, cap_kib, counts
) -> None:
    assert cut_kib(*sizes_kib, cap_kib=cap_kib) == counts


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


@pytest.mark.parametrize(
    ("observed", "merged"),
    [
        ("abcd", "abcd"),
        ("dcba", "dcba"),
        ("", "abcd"),
        ("da", "dabc"),
        ("dc", "dcab"),
        ("b", "bacd"),
    ],
)
def test_a_parameter_that_is_never_used_keeps_no_bucket_of_others(
    observed, merged
) -> None:
    items = [ord(each) for each in "abcd"]
    found = with_unseen_last(items, list(observed.encode()))
    assert found == list(merged.encode())
