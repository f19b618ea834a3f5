"""Planted entries in detail: ranks, hints and readings of a report, and contracts that excuse."""

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from studies.redteam.wrong.leftovers import LeavesFlatParameters, SeedsPython
from studies.redteam.wrong.training import RestoresParameters
from studies.redteam.wrong.values import ClampsLargeOnes, SkipsZeroSums
from syncverify.errors import UsageError
from syncverify.judge.consequences import other_forms, shown_by
from syncverify.judge.properties import ALL_PROPERTIES
from syncverify.judge.violation import Circumstance, Clues, Violation
from syncverify.playing.sim import SimBackend
from syncverify.report.evidence import remedy_of
from syncverify.report.hints import certainty, hint
from syncverify.scenario.contract import PLAIN_CONTRACT, Capabilities
from syncverify.scenario.coverage import judged_features
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.names import check_names
from syncverify.scenario.scenario import Scenario
from syncverify.sim.process_wide.generators import restored_generators
from syncverify.subjects.bugbank.catalogue import entries
from syncverify.subjects.subject import resolve
from syncverify.trace.source_lines import with_code
from tests.programs import identities, violations
from tests.quality.planted import causes_elsewhere, explanations, magnitudes, updates
from tests.quality.planted.first_drawn import first_drawn
from tests.quality.planted.groups import GRID, MakesGroupsWhereNeeded
from tests.quality.planted.magnitudes import ONE_RANK, DropsTheFactorOfOneRank
from tests.quality.planted.planted import LIVE, VALUE, training
from tests.quality.planted.remains import SIX_STEPS
from tests.quality.planted.same_bits import (
    CANCELLING,
    DIFFER,
    ONE,
    ROUNDED,
    GathersParts,
    HoldsSumsNarrow,
    KeepsOwnPart,
    SendsNarrow,
)
from tests.quality.planted.witnesses import BESIDE_THE_BANK, witnesses

HYBRID = "hsdp:{},reduce_dtype=bfloat16"


def owning_parameters(subject: Any) -> Any:
    """Return the subject with a contract by which it owns the parameters."""
    found = resolve(subject)
    owning = replace(found.capabilities, owns_parameters=True)
    return replace(found, capabilities=owning)


@pytest.mark.parametrize(
    ("subject", "scenario"),
    [
        (RestoresParameters, updates.TWO_STEPS),
        (updates.ReadsParametersLate, updates.TWO_STEPS),
        (LeavesFlatParameters, SIX_STEPS),
    ],
)
def test_a_subject_that_owns_the_parameters_may_keep_them(
    subject: type, scenario: Scenario
) -> None:
    assert identities(owning_parameters(subject), scenario) == set()


def test_a_broadcast_names_the_ranks_whose_values_it_changed() -> None:
    played = updates.LOCAL_VALUES
    found = [violations(updates.BroadcastsEverything, each)[0] for each in played]
    assert [each.ranks for each in found] == [(1, 2, 3), (2, 3), (1, 3)]


@pytest.mark.parametrize("seed", range(2))
def test_a_seed_shows_in_a_process_that_was_seeded_alike(seed: int) -> None:
    with restored_generators():
        random.seed(seed)
        found = identities(SeedsPython, SIX_STEPS)
    assert found == {("unbind_restores_parameters", "generator_seeded")}


def test_groups_that_members_alone_make_are_named() -> None:
    run = SimBackend().run(GRID, resolve(MakesGroupsWhereNeeded))
    assert run.fault is not None
    details = "\n".join(map(str, run.fault.details))
    assert "has the ranks [0, 2], used at" in details
    assert "has the ranks [1, 3], used at" in details


def test_the_hint_says_where_a_declared_factor_holds() -> None:
    first, *_ = violations(DropsTheFactorOfOneRank, ONE_RANK[0])
    assert hint(first.cause, first.evidence) == (
        "divide each gradient that has a replicated axis once by the declared factor, also on "
        "axes of one rank; others are not divided"
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"divide_factor": 3}, "expected `divide_factor` of a contract as 0 or 2 or 4 or 8 or 16, got 3"),
        ({"divide_factor": 2, "reduction": "mean"}, "expected `reduction` of a contract as 'sum' beside a divide_factor, got 'mean'"),
    ],
)  # fmt: skip
def test_a_factor_that_rounds_or_has_two_meanings_is_refused(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        Capabilities(**fields)
    assert str(caught.value) == message


# Gradients have other magnitudes in other parameters, and stay exact.
@pytest.mark.parametrize(
    ("subject", "dtype", "wrong"),
    [
        (ClampsLargeOnes, "float32", {"p2", "p3"}),
        (magnitudes.DropsSmallNumbers, "float32", {"p1", "p4"}),
        (magnitudes.DropsTinyNumbers, "bfloat16", {"p4"}),
        (magnitudes.SendsFixedPoint, "float32", {"p1", "p4"}),
        (magnitudes.SendsFixedPoint, "float16", set()),
    ],
)
def test_numbers_that_are_right_for_small_ones_alone_are_wrong(
    subject: type[Any], dtype: str, wrong: set[str]
) -> None:
    scenario = training(5, cap_bytes=1024, parameter={"dtype": dtype})
    found = violations(subject, scenario)
    assert {name for each in found for name in each.parameters} == wrong


@pytest.mark.slow
def test_a_search_draws_zeros_that_show_the_class_that_skips_them() -> None:
    zero = Feature("gradient", "zero")

    def shows(scenario: Scenario) -> bool:
        return zero in judged_features(scenario) and bool(
            identities(SkipsZeroSums, scenario)
        )

    assert first_drawn(shows, PLAIN_CONTRACT, 500) is not None


def test_a_contract_of_sparse_gradients_is_refused() -> None:
    with pytest.raises(UsageError, match="no scenario has sparse gradients"):
        check_names(Capabilities(right=frozenset({"gradient=sparse"})), subject="mine")


# Explanations have several readings, remedies that a line can hold, and lines with their code.


def test_a_doubled_gradient_of_two_ranks_has_several_readings() -> None:
    (found,) = violations(explanations.Doubles, explanations.ONE)
    readings = " ".join([found.summary, *found.evidence.readings])
    assert "counted twice" in readings
    assert "one of several" in certainty(found.cause, found.evidence)


def test_a_report_has_no_id_of_an_object() -> None:
    found = violations(explanations.RaisesAnId, explanations.ONE)
    summaries = "\n".join(each.summary for each in found)
    assert "KeyError" in summaries
    assert not re.search(r"\d{9,}|0x[0-9a-f]{6,}", summaries)


def test_an_early_launch_is_reported_with_its_lines_and_a_wait_that_is_possible() -> (
    None
):
    found = violations(explanations.LaunchesAtOnce, explanations.TWO)
    unordered = [each for each in found if each.evidence.unordered]
    code = with_code(unordered[0].evidence.lines)
    assert any(each.code.endswith("self.launch(bucket)") for each in code)
    assert all(Path(each.line.file).is_file() for each in code)
    assert "run_micro_batch" not in " ".join(map(remedy_of, unordered))


# What follows from a cause that lies elsewhere is a form of it, and nothing else is.


def clues_of(*found: Violation) -> dict[tuple[str, str], Clues]:
    return {e.identity: e.clues | shown_by(e.identity, e.evidence) for e in found}


def test_a_gradient_that_is_not_there_yet_is_the_same_cause_in_a_prehook() -> None:
    hooks = {"hooks": causes_elsewhere.InNodePrehooks.hooks}
    subject = type("Subject", (causes_elsewhere.WithoutGradients,), hooks)
    (found,) = violations(subject, causes_elsewhere.ONE)
    assert found.identity == (LIVE, "hook_too_early")


def test_a_step_unlike_the_one_before_tells_nothing_of_state() -> None:
    unlike = training(shape=(3,), accumulations=(1, 2))
    found = violations(causes_elsewhere.IsNotReset, unlike)
    assert "not_reset" not in {each.cause for each in found}


def test_a_violation_after_a_right_step_alone_is_a_form_of_state_not_reset() -> None:
    found = violations(causes_elsewhere.IsNotReset, causes_elsewhere.TWO_STEPS)
    state = [each for each in found if each.cause == "not_reset"]
    unreduced = [each for each in found if each.cause == "not_reduced"]
    assert unreduced, "the second step exchanged too little"
    clues = clues_of(*state, *unreduced)
    assert set(other_forms([*clues], clues)) == {unreduced[0].identity}


def test_a_mistake_of_every_step_is_no_state() -> None:
    wrong = causes_elsewhere.MultipliesByFive
    found = violations(wrong, causes_elsewhere.TWO_STEPS)
    state = Violation(VALUE, "not_reset", "")
    clues = clues_of(state, *found)
    assert not clues[state.identity].explain(clues[found[0].identity])


def test_nothing_is_certain_of_a_result_where_ranks_send_other_gradients() -> None:
    wrong = causes_elsewhere.CopiesBackAnotherPart
    found = violations(wrong, causes_elsewhere.PAIR)
    certain = {
        each.cause
        for each in found
        if certainty(each.cause, each.evidence).startswith("certain")
    }
    assert "result_dropped" not in certain
    assert "bucket_mismatch" in {each.cause for each in found}


def test_a_disagreement_of_ranks_explains_that_a_second_play_differs() -> None:
    match = Violation("collectives_match_across_ranks", "bucket_mismatch", "")
    contents = frozenset({frozenset({Circumstance.OTHER_CONTENTS})})
    other = Violation(
        "subject_is_deterministic",
        "acts_otherwise",
        "",
        clues=Clues(explained_by=contents),
    )
    clues = clues_of(match, other)
    assert other_forms([*clues], clues) == {other.identity: match.identity}


# A contract with a narrow wire.


@pytest.mark.slow
def test_fsdp2_holds_deferred_sums_in_the_dtype_of_the_wire() -> None:
    """See docs/findings.md."""
    assert ROUNDED in identities(HYBRID.format("all_reduce=last"), CANCELLING)
    assert identities(HYBRID.format("gradient_sync=each"), CANCELLING) == set()


def test_a_lost_sum_is_not_within_the_bound_of_one_that_rounds() -> None:
    class LosesOne(GathersParts):
        def wait(self) -> None:
            pass

    found = {name for name, _ in identities(LosesOne, ONE)}
    assert "gradient_is_within_rounding" in found
    assert "gradient_equals_reference" not in found


@pytest.mark.long
@pytest.mark.parametrize(
    ("defect", "right", "identity"),
    [(HoldsSumsNarrow, SendsNarrow, ROUNDED), (KeepsOwnPart, GathersParts, DIFFER)],
)
def test_a_search_of_a_narrow_wire_finds_the_defect_alone(
    defect: type, right: type, identity: tuple[str, str]
) -> None:
    def is_wrong(drawn: Scenario) -> bool:
        assert identities(right, drawn) == set()
        return identity in identities(defect, drawn)

    assert first_drawn(is_wrong, right.capabilities, 60) is not None


# No property is decoration: each has a planted defect and a right program beside it, which other
# tests play.


def test_each_property_has_a_defect_and_another_program_as_its_twin() -> None:
    shown = witnesses()
    assert {entry.name for entry in ALL_PROPERTIES} == {*shown}
    assert all(defect is not twin for defect, twin in shown.values())


def test_a_property_that_the_bank_shows_needs_no_other_defect() -> None:
    assert {entry.violates for entry in entries()}.isdisjoint(BESIDE_THE_BANK)
