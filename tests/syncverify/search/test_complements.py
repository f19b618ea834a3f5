"""Violations of which one comes where the other one goes are one, and others stay two."""

from functools import partial

import pytest
from typing_extensions import override

from syncverify.backends.sim import SimBackend
from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.bugbank.catalogue import entry_of
from syncverify.search.judge import Identity
from syncverify.search.result import SilentProgress, merged
from syncverify.search.search import search
from syncverify.settings import Settings
from syncverify.subjects.subject import Subject, resolve

EARLY = ("accumulation_is_local_until_reduced", "reduced_early")
NEVER = ("gradient_equals_reference", "not_reduced")
LOST = ("gradient_equals_reference", "micro_batch_missing")
NOT_RESET = ("gradient_equals_reference", "not_reset")
STALE = ("gradient_equals_reference", "stale")
PARTLY = ("gradient_equals_reference", "rank_contribution_missing")
SETTINGS = Settings(examples=60, seed=0)
at_night = partial(pytest.param, marks=pytest.mark.nightly)


class LaunchesEarlyAndForgets(ViewBuckets):
    """Two mistakes: the first bucket is launched at once, and the last one is forgotten."""

    @override
    def on_accumulated(self, bucket: Bucket, parameter: object) -> None:
        if bucket is self.buckets[-1] and len(self.buckets) > 1:
            return
        if bucket is self.buckets[0] and bucket.work is None:
            self.launch(bucket)
        else:
            super().on_accumulated(bucket, parameter)


def found(subject: Subject) -> dict[tuple[str, str], set[tuple[str, str]]]:
    result = search(subject, SimBackend(), SETTINGS, SilentProgress())
    return {
        entry.violation.identity: {(one.property, one.cause) for one in entry.related}
        for entry in merged([result]).violations
    }


@pytest.mark.long
@pytest.mark.parametrize(
    ("entry_id", "one", "other"),
    [
        at_night("multi-model-accumulate", EARLY, NEVER),
        at_night("ready-count-learned-once", EARLY, NEVER),
        at_night("static-graph-count-inflated", NOT_RESET, EARLY),
        ("graph-captures-flag", EARLY, NEVER),
        at_night("micro-step-off-by-one-first-window", LOST, STALE),
        at_night("bucket-not-padded-to-group", NEVER, PARTLY),
    ],
)
def test_one_mistake_in_two_forms_is_one_violation(
    entry_id: str, one: Identity, other: Identity
) -> None:
    violations = found(entry_of(entry_id).defect())
    assert [*violations] == [one]
    assert other in violations[one]


@pytest.mark.nightly
def test_a_bucket_that_is_forgotten_beside_an_early_one_is_a_violation() -> None:
    assert {EARLY, NEVER} <= {*found(resolve(LaunchesEarlyAndForgets))}
