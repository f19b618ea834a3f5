"""One defect of the bank is one violation, and two defects put together are two.

All entries, ten minutes or so: pytest tests/quality/test_one_defect.py --hypothesis-profile=nightly
"""

from typing import Any

import pytest
import torch

from syncverify.backends.sim import SimBackend
from syncverify.bugbank.bases.in_wait import ReducesInWait, is_odd
from syncverify.bugbank.bases.main_grads import AveragedMainGrads, Bucket, MainGrads
from syncverify.bugbank.bases.placements import local_grad
from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.bases.view_buckets import Bucket as ViewBucket
from syncverify.bugbank.catalogue import entries, entry_of
from syncverify.bugbank.cross_rank import ReducesInRankOrder
from syncverify.bugbank.ordering.streams import WaitsForLastPacker
from syncverify.bugbank.ordering.works import RefillsStagingEarly
from syncverify.scenario.scenario import Scenario
from syncverify.search.drawing import Drawing
from syncverify.search.judge import Identity, Judge, JudgedRun
from syncverify.search.occurrences import Occurrences, join_complements
from syncverify.search.schedules import ScheduleChoice
from syncverify.search.search import judge_each_scenario
from syncverify.subjects.subject import Subject, resolve
from tests.quality.planted.planted import VALUE

UNREDUCED = (VALUE, "not_reduced")
SCALED = (VALUE, "scaled")
MISMATCH = ("collectives_match_across_ranks", "collective_mismatch")
DEADLOCK = ("every_wait_completes", "deadlock")
# Entries that show in two forms, with the number of scenarios in which both are met.
JOINED = {"pingpong-buffer-reused-early": 20, "rank-local-skip": 12}


def found(subject: Subject, num_examples: int) -> set[Identity]:
    """Search, and shrink nothing; return the identities that count."""
    met = Occurrences()

    def take(_: Scenario, judged: JudgedRun) -> None:
        met.add(judged.violations)

    drawing = Drawing(subject.capabilities, 4, num_examples, 0)
    judge = Judge(subject, SimBackend(), ScheduleChoice(), 0)
    judge_each_scenario(drawing, judge, take)
    join_complements(judge, met)
    return {*met.reported()}


@pytest.mark.nightly
@pytest.mark.parametrize("entry_id", JOINED)
def test_two_forms_of_a_defect_are_one_violation(entry_id: str) -> None:
    assert len(found(entry_of(entry_id).defect(), JOINED[entry_id])) == 1


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


class ReordersAndSwaps(ReducesInRankOrder):
    """A wrong order, and two gradients of equal size handed back to each other."""

    def wait(self) -> None:
        super().wait()
        first, last = next(iter(self.moved)), next(reversed(self.moved))
        mine, other = local_grad(first), local_grad(last)
        if mine.shape == other.shape and first.dtype == last.dtype and not is_odd():
            first.grad, last.grad = last.grad, first.grad


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


class PacksNotAndJoinsNot(WaitsForLastPacker):
    """The reduction does not wait for one packer, and the caller not for the reduction."""

    def wait(self) -> None:
        with torch.cuda.stream(self.comm):
            for packer in self.awaited():
                self.comm.wait_stream(packer)
            MainGrads.wait(self)


class RefillsAndJoinsNot(RefillsStagingEarly):
    """A staging buffer is filled again too early, and the caller does not wait in the end."""

    def join(self) -> None:
        pass


class DividesAndLoses(AveragedMainGrads):
    """A wrong divisor, and of the first parameter all micro-batches but the last are lost."""

    def divisor(self, bucket: Bucket) -> int:
        factor = 1 if next(iter(self.moved)) in bucket.slots else 3
        return factor * super().divisor(bucket)

    def on_accumulated(self, slot: torch.Tensor, parameter: Any) -> None:
        if parameter is next(iter(self.moved)):
            self.moved[parameter] = 0
        super().on_accumulated(slot, parameter)


READ = ("wait_orders_reads_after_reduce", "read_before_reduced")
TOUCHED = ("bucket_is_exclusive_while_reducing", "touched_in_flight")
FILLED = ("reduce_reads_after_accumulation", "reduced_before_accumulated")
# Each subject with the number of its scenarios: few where both defects are met early.
TWO_DEFECTS: dict[tuple[type[Any], int], set[Identity]] = {
    (ReordersAndDrops, 20): {MISMATCH, UNREDUCED},
    # Ranks of unequal buckets mismatch, a form of the deadlock, which the 11th scenario shows.
    (SkipsAndDrops, 20): {DEADLOCK, UNREDUCED},
    (NeitherForksNorJoins, 10): {FILLED, READ},
    (JoinsNotAndDoubles, 10): {READ, SCALED},
    (RefillsAndJoinsNot, 20): {TOUCHED, READ},
    (DividesAndLoses, 10): {SCALED, (VALUE, "micro_batch_missing")},
    (PacksNotAndJoinsNot, 15): {FILLED, READ},
    (ReordersAndSwaps, 25): {MISMATCH, (VALUE, "misplaced")},
}
IN_MAKE_CHECK = [*TWO_DEFECTS][:4]


@pytest.mark.long
@pytest.mark.parametrize(("both", "num_examples"), IN_MAKE_CHECK)
def test_two_defects_are_two_violations(both: type[Any], num_examples: int) -> None:
    assert found(resolve(both), num_examples) == TWO_DEFECTS[both, num_examples]


@pytest.mark.nightly
@pytest.mark.parametrize(("both", "num_examples"), TWO_DEFECTS)
def test_two_defects_stay_two_in_more_scenarios(
    both: type[Any], num_examples: int
) -> None:
    assert found(resolve(both), 100) >= TWO_DEFECTS[both, num_examples]
