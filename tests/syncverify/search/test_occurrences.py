"""One defect is one violation; two defects are two."""

from dataclasses import replace
from typing import Any

import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from syncverify.backends.sim import SimBackend
from syncverify.judge.evidence import Evidence
from syncverify.judge.violation import Violation
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Identity
from syncverify.search.occurrences import Occurrences
from syncverify.search.result import SilentProgress, merged
from syncverify.search.search import search
from syncverify.settings import Settings
from syncverify.subjects.subject import resolve
from tests.syncverify.search.search_subjects import Doubles, Naive, SkipsThird

SCENARIO = Scenario(
    MeshSpec((2,), ("dp",)), (ParameterSpec("p0", (2,), ("R",)),), (1,), 64
)
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


def test_violations_met_while_shrinking_are_listed_in_the_order_of_their_run() -> None:
    """The order of a set would change with the hash seed of the process."""
    causes = [f"cause_{number}" for number in (5, 2, 7, 1, 6, 3, 8, 4)]
    seen = [("gradient_equals_reference", cause) for cause in causes]
    occurrences = met((LOCAL,))
    occurrences.note_while_shrinking(run_of(*seen), LOCAL)
    (listed,) = related(occurrences).values()
    assert [identity for identity, _ in listed] == seen


def test_a_consequence_explains_nothing_that_its_own_cause_cannot() -> None:
    early = ("reduce_reads_after_accumulation", "reduced_before_accumulated")
    error = ("every_rank_finishes", "raised_ValueError")
    occurrences = met((early, error, SCALED))  # no order multiplies a number
    assert [*occurrences.reported()] == [early, SCALED]
    assert related(occurrences) == {early: [(error, True)]}


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


def test_of_several_causes_the_one_that_is_met_most_is_named() -> None:
    occurrences = met((MISMATCH, DIFFER), (SCALED, DIFFER), (SCALED, DIFFER))
    assert related(occurrences) == {SCALED: [(DIFFER, True)]}


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


def test_a_consequence_in_one_process_may_be_a_violation_in_another() -> None:
    both = met((MISMATCH, SCALED))
    both.update(met((SCALED,)))
    assert [*both.reported()] == [MISMATCH, SCALED]
    assert related(both) == {}


def explained(subject: Any) -> dict[Identity, set[str]]:
    """Search; return the identities that count, and the properties that each explains."""
    settings = Settings(ranks=2, examples=40, seed=0)
    result = search(resolve(subject), SimBackend(), settings, SilentProgress())
    return {
        entry.violation.identity: {one.property for one in entry.related}
        for entry in merged([result]).violations
    }


class TakesTurns(Naive):
    """One defect: even ranks reduce from the first parameter on, odd ones from the last."""

    def wait(self) -> None:
        if dist.get_rank() % 2:
            self.parameters.reverse()
        super().wait()


@pytest.mark.long
@pytest.mark.usefixtures("hardly_shrunk")
def test_one_defect_is_one_violation_with_its_consequences() -> None:
    (found,) = explained(TakesTurns).items()
    assert found[0][0] in {"every_wait_completes", "collectives_match_across_ranks"}
    assert found[1]


class ThreeDefects(SkipsThird, Doubles):
    """The two defects of `Doubles`, and the third parameter is not reduced."""


@pytest.mark.nightly
def test_different_defects_are_different_violations() -> None:
    assert {*explained(Doubles)} == {
        SCALED,
        ("unbind_restores_parameters", "hook_left"),
    }
    causes = {cause for _, cause in explained(ThreeDefects)}
    assert {"scaled", "hook_left"} < causes
    assert causes & {"not_reduced", "rank_contribution_missing"}


def test_what_is_first_met_while_shrinking_is_listed_with_what_was_shrunk() -> None:
    shrunk, own = SCALED, STALE
    occurrences = met((shrunk,))
    occurrences.note_while_shrinking(run_of(own), shrunk)
    assert [*occurrences.reported()] == [shrunk]
    assert related(occurrences) == {shrunk: [(own, False)]}
    occurrences.note_while_shrinking(run_of(shrunk), shrunk)  # known already
    assert related(occurrences) == {shrunk: [(own, False)]}


def test_what_explains_is_no_form_of_what_it_explains() -> None:
    """`SCALED` comes before `LOCAL` in rank, and was met only while `LOCAL` was shrunk."""
    occurrences = met((LOCAL,))
    occurrences.note_while_shrinking(run_of(SCALED), LOCAL)
    assert [*occurrences.reported()] == [LOCAL]
    assert related(occurrences) == {LOCAL: [(SCALED, False)]}


def test_of_two_that_explain_each_other_in_two_searches_one_counts() -> None:
    one, other = met((LOCAL,)), met((STALE,))
    one.note_while_shrinking(run_of(STALE), LOCAL)
    other.note_while_shrinking(run_of(LOCAL), STALE)
    one.update(other)
    assert [*one.reported()] == [STALE]
    assert related(one) == {STALE: [(LOCAL, False)]}


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
