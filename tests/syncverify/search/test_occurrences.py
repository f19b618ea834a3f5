"""One defect is one violation; two defects are two."""

from dataclasses import replace

import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from syncverify.judge.evidence import Evidence
from syncverify.judge.violation import Violation
from syncverify.playing.sim import SimBackend
from syncverify.progress import SilentProgress
from syncverify.scenario.settings import Settings
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Identity
from syncverify.search.occurrences import Occurrences
from syncverify.search.result import merged
from syncverify.search.search import search
from syncverify.subjects.bugbank.catalogue import entry_of
from syncverify.subjects.subject import Subject, resolve
from tests.programs import one_parameter
from tests.syncverify.search.search_subjects import Naive

SCENARIO = one_parameter(2, "p0", (2,), cap_bytes=64)
MISMATCH = ("collectives_match_across_ranks", "collective_mismatch")
DEADLOCK = ("every_wait_completes", "deadlock")
SCALED = ("gradient_equals_reference", "scaled")
STALE = ("gradient_equals_reference", "stale")
LOCAL = ("unreduced_stay_local", "scaled")
DIFFER = ("replicas_agree", "replicas_differ")


def run_of(*identities: Identity) -> dict[Identity, FoundViolation]:
    """Return the violations of one run."""
    return {
        one: FoundViolation(Violation(*one, f"about {one[1]}"), SCENARIO)
        for one in identities
    }


def met(*runs: tuple[Identity, ...]) -> Occurrences:
    occurrences = Occurrences()
    for run in runs:
        occurrences.add(run_of(*run))
    return occurrences


def related(occurrences: Occurrences) -> dict[Identity, list[tuple[Identity, bool]]]:
    return {
        identity: [((one.property, one.cause), one.is_consequence) for one in each]
        for identity, each in occurrences.reported().items()
        if each
    }


def test_zero_grad_after_a_step_explains_no_wrong_number_of_that_step() -> None:
    left, stale = (
        ("zero_grad_clears", "gradient_left"),
        ("accumulation_is_local_until_reduced", "stale"),
    )
    steps = {left: 0, stale: 1, SCALED: 0}
    occurrences = Occurrences()
    occurrences.add(
        {
            identity: replace(
                found, violation=replace(found.violation, evidence=Evidence(step=step))
            )
            for (identity, found), step in zip(
                run_of(*steps).items(), steps.values(), strict=True
            )
        }
    )
    assert [*occurrences.reported()] == [SCALED, left]
    assert related(occurrences) == {left: [(stale, True)]}


def test_what_occurs_with_its_cause_alone_is_a_consequence() -> None:
    occurrences = met((MISMATCH, DEADLOCK, SCALED, DIFFER), (MISMATCH, SCALED))
    assert [*occurrences.reported()] == [MISMATCH]
    assert related(occurrences) == {
        MISMATCH: [(DEADLOCK, True), (SCALED, True), (DIFFER, True)]
    }


def test_what_occurs_without_its_cause_once_is_a_violation() -> None:
    occurrences = met((MISMATCH, SCALED), (MISMATCH, SCALED), (SCALED,))
    assert [*occurrences.reported()] == [MISMATCH, SCALED]
    assert related(occurrences) == {}


def test_another_form_is_listed_after_the_consequences() -> None:
    occurrences = met((LOCAL,), (SCALED, DIFFER))
    assert [*occurrences.reported()] == [SCALED]
    assert related(occurrences) == {SCALED: [(DIFFER, True), (LOCAL, False)]}


def test_only_violations_that_count_are_reported_and_each_once() -> None:
    occurrences = Occurrences()
    identities = [
        [entry.violation.identity for entry in occurrences.add(run_of(*run))]
        for run in ((MISMATCH, SCALED), (MISMATCH,), (SCALED,), (LOCAL,), (STALE,))
    ]
    assert identities == [[MISMATCH], [], [SCALED], [], [STALE]]


def explained(
    subject: Subject, ranks: int, examples: int
) -> dict[Identity, set[Identity]]:
    """Search; return the identities that count, and those that each explains."""
    settings = Settings(ranks=ranks, examples=examples, seed=0)
    result = search(subject, SimBackend(), settings, SilentProgress())
    return {
        entry.violation.identity: {(one.property, one.cause) for one in entry.related}
        for entry in merged([result]).violations
    }


@pytest.mark.long
def test_a_violation_that_comes_where_another_one_goes_is_a_form_of_it() -> None:
    subject = entry_of("graph-captures-flag").defect()
    (found,) = explained(subject, ranks=4, examples=60).items()
    assert found[0] == ("accumulation_is_local_until_reduced", "reduced_early")
    assert ("gradient_equals_reference", "not_reduced") in found[1]


class TakesTurns(Naive):
    """One defect: even ranks reduce from the first parameter on, odd ones from the last."""

    def wait(self) -> None:
        if dist.get_rank() % 2:
            self.parameters.reverse()
        super().wait()


@pytest.mark.long
@pytest.mark.usefixtures("hardly_shrunk")
def test_one_defect_is_one_violation_with_its_consequences() -> None:
    (found,) = explained(resolve(TakesTurns), ranks=2, examples=40).items()
    assert found[0][0] in {"every_wait_completes", "collectives_match_across_ranks"}
    assert found[1]


def test_what_is_first_met_while_shrinking_is_listed_with_what_was_shrunk() -> None:
    shrunk, own = SCALED, STALE
    occurrences = met((shrunk,))
    occurrences.note_while_shrinking(run_of(own), shrunk)
    assert [*occurrences.reported()] == [shrunk]
    assert related(occurrences) == {shrunk: [(own, False)]}
    occurrences.note_while_shrinking(run_of(shrunk), shrunk)  # known already
    assert related(occurrences) == {shrunk: [(own, False)]}


IDENTITIES = [SCALED, STALE, LOCAL, DIFFER, DEADLOCK]


@given(
    st.lists(st.sets(st.sampled_from(IDENTITIES), min_size=1), min_size=1),
    st.dictionaries(st.sampled_from(IDENTITIES), st.sampled_from(IDENTITIES)),
)
def test_some_violation_counts_where_a_run_has_any(
    runs: list[set[Identity]], joined: dict[Identity, Identity]
) -> None:
    occurrences = met(*(tuple(run) for run in runs))
    occurrences.joined = {
        one: joined[one]
        for one in occurrences.own
        if joined.get(one) in occurrences.own
    }
    reported = occurrences.reported()
    listed = {(one.property, one.cause) for each in reported.values() for one in each}
    assert reported
    assert listed == occurrences.first.keys() - reported.keys()
