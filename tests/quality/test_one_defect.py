"""One defect of the bank is one violation, and two defects put together are two.

All entries, ten minutes or so: pytest tests/quality/test_one_defect.py --hypothesis-profile=nightly
"""

from typing import Any

import pytest

from syncverify.playing.sim import SimBackend
from syncverify.progress import SilentProgress
from syncverify.scenario.schedule import ScheduleChoice
from syncverify.scenario.settings import Settings
from syncverify.search.drawing import Drawing
from syncverify.search.exploration import Exploration
from syncverify.search.judge import Identity, Judge
from syncverify.search.occurrences import join_complements
from syncverify.subjects.bugbank.bases.main_grads import Bucket
from syncverify.subjects.bugbank.bases.side_streams import SideStreams
from syncverify.subjects.bugbank.bases.view_buckets import Bucket as ViewBucket
from syncverify.subjects.bugbank.bases.view_buckets import ReducesInWait, is_odd
from syncverify.subjects.bugbank.catalogue import entries, entry_of
from syncverify.subjects.bugbank.cross_rank import ReducesInRankOrder
from syncverify.subjects.subject import Subject, resolve
from tests.quality.planted.planted import VALUE
from tests.syncverify.explain.repair.flat_buckets import FlatBuckets

UNREDUCED = (VALUE, "not_reduced")
SCALED = (VALUE, "scaled")
MISMATCH = ("collectives_match_across_ranks", "collective_mismatch")
DEADLOCK = ("every_wait_completes", "deadlock")


def found(subject: Subject, num_examples: int, seed: int = 0) -> set[Identity]:
    """Search, and shrink nothing; return the identities that count."""
    drawing = Drawing(subject.capabilities, 4, num_examples, seed)
    judge = Judge(subject, SimBackend(), ScheduleChoice(), 0)
    settings = Settings(ranks=4, examples=num_examples)
    exploration = Exploration(judge, settings, SilentProgress(), 0)
    exploration.play(drawing)
    join_complements(judge, exploration.met)
    return {*exploration.met.reported()}


@pytest.mark.nightly
@pytest.mark.parametrize("entry_id", [entry.name for entry in entries()])
def test_defect_of_the_bank_is_at_most_one_violation(entry_id: str) -> None:
    identities = found(entry_of(entry_id).defect(), 100)  # two need more to be met
    assert len(identities) <= 1


class ReordersAndDrops(ReducesInRankOrder):
    """A wrong order, and a last parameter that is never reduced."""

    def reduce(self, bucket: Bucket) -> None:
        *_, last = self.moved
        if last not in bucket.slots:
            super().reduce(bucket)


class SkipsAndDrops(ReducesInWait):
    """Odd ranks skip the last bucket, and no rank reduces the first."""

    def order(self) -> list[ViewBucket]:
        return self.buckets[1:-1] if is_odd() else self.buckets[1:]


class NeitherForksNorJoins(SideStreams):
    """Two missing waits."""

    def fork(self) -> None:
        pass

    def join(self) -> None:
        pass


class JoinsNotAndDoubles(SideStreams):
    """A missing wait, and sums that are doubled."""

    def join(self) -> None:
        pass

    def finish(self, bucket: ViewBucket) -> None:
        super().finish(bucket)
        bucket.buffer.mul_(2)


READ = ("wait_orders_reads_after_reduce", "read_before_reduced")
TOUCHED = ("bucket_is_exclusive_while_reducing", "touched_in_flight")
FILLED = ("reduce_reads_after_accumulation", "reduced_before_accumulated")
EARLY = ("accumulation_is_local_until_reduced", "reduced_early")
RAISED = ("every_rank_finishes", "raised_AttributeError")
# Each subject with the number of its scenarios: few where both defects are met early.
TWO_DEFECTS: dict[tuple[type[Any], int], set[Identity]] = {
    (ReordersAndDrops, 20): {MISMATCH, UNREDUCED},
    # Ranks of unequal buckets mismatch, a form of the deadlock, which the 11th scenario shows.
    (SkipsAndDrops, 20): {DEADLOCK, UNREDUCED},
    (NeitherForksNorJoins, 10): {FILLED, READ},
    (JoinsNotAndDoubles, 10): {READ, SCALED},
}


@pytest.mark.long
@pytest.mark.parametrize(("both", "num_examples"), TWO_DEFECTS)
def test_two_defects_are_two_violations(both: type[Any], num_examples: int) -> None:
    assert found(resolve(both), num_examples) == TWO_DEFECTS[both, num_examples]


# A state that a step leaves over is one violation, whatever it breaks in the next step.


class KeepsItsCounts(FlatBuckets):
    """Counts on in the next step."""

    def wait(self) -> None:
        kept = self.count.copy()
        super().wait()
        self.count = kept


class KeepsTheReady(FlatBuckets):
    """Takes the parameters of the step before for ready."""

    def wait(self) -> None:
        kept = [(bucket, {*bucket["ready"]}) for bucket, *_ in self.pending]
        super().wait()
        for bucket, ready in kept:
            bucket["ready"] = ready


class NoWork:
    def wait(self) -> None: ...


class WaitsForNothing(KeepsItsCounts):
    """A mistake of each step, the first one included, beside a state that is left over."""

    def wait(self) -> None:
        self.pending = [(*rest, NoWork()) for *rest, _ in self.pending]
        super().wait()


@pytest.mark.long(8)
@pytest.mark.parametrize(
    ("subject", "identities", "num_examples"),
    [
        (FlatBuckets, set(), 30),
        (KeepsItsCounts, {EARLY}, 30),  # some of them show its consequence alone
        pytest.param(KeepsTheReady, {RAISED}, 60, marks=pytest.mark.nightly),
        pytest.param(WaitsForNothing, {EARLY, TOUCHED}, 60, marks=pytest.mark.nightly),
    ],
)
def test_one_mistake_of_state_is_one_violation(
    subject: type[Any], identities: set[Identity], num_examples: int
) -> None:
    assert found(resolve(subject), num_examples, seed=1) == identities
