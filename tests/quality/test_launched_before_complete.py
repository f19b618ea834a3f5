"""A bucket that is launched before its last gradient is one violation: the early reduction.

Autograd then adds to memory in flight, which a wait would order; the gradient would stay wrong.
"""

from dataclasses import replace

import pytest

import syncverify
from syncverify.playing.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE, ScheduleChoice
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.judge import Judge
from syncverify.search.occurrences import Occurrences
from syncverify.subjects.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.subjects.bugbank.catalogue import entry_of

pytestmark = pytest.mark.slow
P = ParameterSpec
TWO_IN_A_BUCKET = (P("a", (2,), ("R",)), P("b", (3,), ("R",)))
EARLY = ("gradient_equals_reference", "reduced_early")
FILLED = ("reduce_reads_after_accumulation", "reduced_before_accumulated")
LAUNCHES_ON_FIRST = entry_of("reentrant-overwrites-in-flight")
TOUCHED = ("bucket_is_exclusive_while_reducing", "touched_in_flight")


class AnyForAll(ViewBuckets):
    """Launches a bucket when its first gradient is complete."""

    def is_ready(self, bucket: Bucket) -> bool:
        counts = [bucket.counts[each] for each in bucket.parameters]
        return max(counts) == self.required and bucket.work is None


class WritesInFlight(ViewBuckets):
    """Is complete when it launches, and writes its buffer in flight."""

    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        bucket.buffer.add_(0)


def related(
    subject: type, accumulations: int = 2, axes: tuple[str, ...] = ("dp",)
) -> dict[object, set[object]]:
    """Return the violations of a step on two ranks along each axis, with those that each explains."""
    mesh = MeshSpec((2,) * len(axes), axes)
    both = tuple(
        replace(each, placements=("R",) * len(axes)) for each in TWO_IN_A_BUCKET
    )
    scenario = Scenario(mesh, both, (accumulations,), 1 << 20)
    played = syncverify.play(scenario, subject)
    return {
        each.violation.identity: {(one.property, one.cause) for one in each.related}
        for each in played.violations
    }


@pytest.mark.parametrize("accumulations", [2, 3])
def test_the_early_reduction_comes_before_the_use_in_flight(accumulations: int) -> None:
    found = related(AnyForAll, accumulations)
    assert [*found] == [EARLY]
    assert TOUCHED in found[EARLY]


@pytest.mark.parametrize("accumulations", [1, 2])
@pytest.mark.parametrize("subject", [AnyForAll, LAUNCHES_ON_FIRST.defect().factory])
def test_a_second_reduction_in_wait_hides_no_early_reduction(
    subject: type, accumulations: int
) -> None:
    found = related(subject, accumulations, ("dp", "tp"))
    assert [*found] == [EARLY]
    assert TOUCHED in found[EARLY]


@pytest.mark.parametrize("axes", [("dp",), ("dp", "tp")])
def test_a_use_in_flight_of_a_complete_bucket_stays_one(axes: tuple[str, ...]) -> None:
    assert TOUCHED in related(WritesInFlight, axes=axes)


@pytest.mark.parametrize("axes", [("dp",), ("dp", "tp")])
def test_buckets_that_wait_for_all_gradients_are_right(axes: tuple[str, ...]) -> None:
    assert related(ViewBuckets, axes=axes) == {}


def test_a_second_reduction_of_an_early_sum_is_a_form_of_it() -> None:
    judge = Judge(LAUNCHES_ON_FIRST.defect(), SimBackend(), ScheduleChoice(), 0)
    met = Occurrences()
    for shape in ((2, 1), (2, 2)):
        both = tuple(replace(each, placements=("R", "R")) for each in TWO_IN_A_BUCKET)
        scenario = Scenario(MeshSpec(shape, ("dp", "tp")), both, (2, 1), 1 << 20)
        met.add(judge.judge_schedule(scenario, DEFAULT_SCHEDULE).violations)
    assert FILLED in met.own
    assert [*met.reported()] == [EARLY]
