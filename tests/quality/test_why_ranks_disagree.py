"""Buckets of several groups, and buckets that ranks cut differently, are reported, right ones not."""

from collections.abc import Iterator

import torch.distributed as dist
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.placements import BYTES_PER_MB, Groups, local_bytes
from syncverify.bugbank.bases.view_buckets import ViewBuckets
from syncverify.bugbank.cross_rank import CutsAtItsOwnCap
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from tests.programs import violations

UNEVEN = Scenario(
    MeshSpec((2,), ("dp",)),
    (ParameterSpec("p0", (1,), ("S0",)), ParameterSpec("p1", (2,), ("R",))),
    (1,),
    BYTES_PER_MB,
)


class MixesGroups(ViewBuckets):
    """Fills buckets without a look at groups; the last parameter's is taken for all."""

    @override
    def plan(self) -> Iterator[list[nn.Parameter]]:
        yield [parameter for group in self.param_groups for parameter in group[::-1]]


def test_a_bucket_of_two_groups_is_reported_as_such() -> None:
    first, *_ = violations(MixesGroups, UNEVEN)
    assert first.identity == ("collectives_match_across_ranks", "groups_mixed")
    assert "the bucket of p1 holds gradients of other groups" in first.summary
    assert violations(ViewBuckets, UNEVEN) == []


class SumsPartsOfABucket(MixesGroups):
    """One buffer for gradients of two groups, whose parts are summed one by one: right."""

    @override
    def groups_of(self, parameter: nn.Parameter) -> Groups:
        return ()  # no group has the whole buffer

    @override
    def wait(self) -> None:
        for bucket in self.buckets:
            start = 0
            for parameter in bucket.parameters:
                end = start + local_bytes(parameter) // bucket.buffer.itemsize
                for group in super().groups_of(parameter):
                    dist.all_reduce(bucket.buffer[start:end], group=group)
                start = end


def test_a_buffer_of_two_groups_may_be_summed_in_parts() -> None:
    assert violations(SumsPartsOfABucket, UNEVEN) == []


def test_buckets_that_ranks_divide_otherwise_are_reported_as_such() -> None:
    specs = (ParameterSpec("p0", (1,), ("R",)), ParameterSpec("p1", (2,), ("R",)))
    scenario = Scenario(MeshSpec((2,), ("dp",)), specs, (1,), BYTES_PER_MB)
    first, *_ = violations(CutsAtItsOwnCap, scenario)
    assert first.identity == ("collectives_match_across_ranks", "buckets_differ")
    assert "p0 is in one bucket with p1 on rank 0, and not on rank 1" in first.summary
    assert violations(ViewBuckets, scenario) == []
