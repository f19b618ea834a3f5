"""Early and missing reductions are one violation if one count explains both, and two if not."""

import pytest
from typing_extensions import override

from syncverify.backends.sim import SimBackend
from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.bugbank.catalogue import entry_of
from syncverify.search.result import SearchPlan, SilentProgress, merged
from syncverify.search.search import search
from syncverify.search.window_lengths import EARLY, NEVER
from syncverify.subjects.subject import Subject, resolve

PLAN = SearchPlan(max_ranks=2, num_examples=60, random_seed=0)


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
    result = search(subject, SimBackend(), PLAN, SilentProgress())
    return {
        entry.violation.identity: {(one.property, one.cause) for one in entry.related}
        for entry in merged([result]).violations
    }


@pytest.mark.long
@pytest.mark.parametrize(
    "entry_id",
    ["multi-model-accumulate", "ready-count-learned-once", "static-graph-count-inflated"],
)  # fmt: skip
def test_one_wrong_count_is_one_violation(entry_id: str) -> None:
    violations = found(entry_of(entry_id).defect())
    assert [*violations] == [EARLY]
    assert NEVER in violations[EARLY]


@pytest.mark.long
def test_a_bucket_that_is_forgotten_beside_an_early_one_is_a_violation() -> None:
    assert {EARLY, NEVER} <= {*found(resolve(LaunchesEarlyAndForgets))}
