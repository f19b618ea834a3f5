"""Which violation may be the cause of which, and which are forms of one mistake."""

import pytest

from syncverify.judge.consequences import (
    consequences_of,
    may_cause,
    other_forms,
    shown_by,
)
from syncverify.judge.evidence import Evidence
from syncverify.judge.properties import ALL_PROPERTIES
from syncverify.judge.signs import CauseSign, Clues, Meeting
from syncverify.judge.violation import Violation
from syncverify.trace.source_lines import SourceLine

GRADIENT = "gradient_equals_reference"
LOCAL = "unreduced_stay_local"
WAIT = "every_wait_completes"
MATCH = "collectives_match_across_ranks"
UNBIND = "unbind_restores_parameters"


@pytest.mark.parametrize("name", [entry.name for entry in ALL_PROPERTIES])
def test_no_property_is_its_own_consequence(name: str) -> None:
    assert name not in consequences_of(name)
    assert consequences_of(name) <= {entry.name for entry in ALL_PROPERTIES}


def test_consequences_of_consequences_follow() -> None:
    assert {WAIT, GRADIENT, "replicas_agree"} <= consequences_of(MATCH)
    assert MATCH not in consequences_of(GRADIENT)


def test_causes_of_one_property_are_mistakes_of_their_own() -> None:
    assert not may_cause((GRADIENT, "not_reduced"), (GRADIENT, "scaled"))
    assert may_cause((UNBIND, "hook_left"), (UNBIND, "collective_after_unbind"))
    assert not may_cause((UNBIND, "collective_after_unbind"), (UNBIND, "hook_left"))


@pytest.mark.parametrize("cause", ["not_reduced", "result_dropped", "view_lost"])
def test_a_gradient_that_is_left_keeps_no_other_from_being_reduced(cause: str) -> None:
    left = ("zero_grad_clears", "gradient_left")
    assert not may_cause(left, (GRADIENT, cause))
    assert may_cause(left, (GRADIENT, "stale"))


def test_one_cause_of_two_properties_is_one_mistake() -> None:
    scaled, local = (GRADIENT, "scaled"), (LOCAL, "scaled")
    assert other_forms([scaled, local, (LOCAL, "stale")]) == {local: scaled}


def test_a_vague_cause_gives_way_to_a_precise_one_about_values() -> None:
    precise, vague = (LOCAL, "stale"), (GRADIENT, "unexplained")
    assert other_forms([vague, precise]) == {vague: precise}
    assert other_forms([vague]) == {}
    assert other_forms([vague, (UNBIND, "hook_left")]) == {}


def violation(name: str, cause: str, *paths: str) -> Violation:
    lines = tuple(SourceLine(path, 1, "f") for path in paths)
    return Violation(name, cause, "", evidence=Evidence(named=lines))


def test_disagreements_about_the_same_line_are_one() -> None:
    deadlock = violation(WAIT, "deadlock", "a.py", "b.py")
    same = violation(MATCH, "bucket_mismatch", "b.py")
    elsewhere = violation(MATCH, "collective_mismatch", "c.py")
    known = {
        one.identity: shown_by(one.identity, one.evidence)
        for one in (deadlock, same, elsewhere)
    }
    assert known[deadlock.identity].shows == {Meeting("a.py", 1), Meeting("b.py", 1)}
    assert other_forms([*known], known) == {same.identity: deadlock.identity}


def test_two_disagreements_are_one_by_a_third_that_shares_a_line_with_both() -> None:
    deadlock = violation(WAIT, "deadlock", "a.py")
    bound = violation(WAIT, "step_bound", "b.py")
    both = violation(MATCH, "collective_mismatch", "a.py", "b.py")
    known = {
        one.identity: shown_by(one.identity, one.evidence)
        for one in (deadlock, bound, both)
    }
    assert other_forms([*known], known) == dict.fromkeys(
        (bound.identity, both.identity), deadlock.identity
    )


def test_lines_count_for_disagreements_alone() -> None:
    scaled = violation(GRADIENT, "scaled", "a.py")
    assert shown_by(scaled.identity, scaled.evidence) == Clues()


def clues(shows: str, *explained_by: str) -> Clues:
    explaining = (frozenset({CauseSign(one)}) for one in explained_by)
    return Clues(frozenset({CauseSign(shows)}), frozenset(explaining))


def test_a_violation_whose_every_finding_another_one_explains_is_a_form_of_it() -> None:
    scaled, missing = (GRADIENT, "scaled"), (GRADIENT, "micro_batch_missing")
    known = {scaled: clues("scaled"), missing: clues("missing", "scaled")}
    assert other_forms([missing, scaled], known) == {missing: scaled}
    apart = {**known, missing: clues("missing", "scaled", "stale")}
    assert other_forms([missing, scaled], apart) == {}


def test_of_two_that_explain_each_other_the_first_one_counts() -> None:
    one, other = (GRADIENT, "scaled"), (LOCAL, "stale")
    known = {one: clues("a", "b"), other: clues("b", "a")}
    assert other_forms([one, other], known) == {other: one}


def test_what_fits_no_other_property_of_order_is_explained_and_explains_nothing() -> (
    None
):
    left = ("reduce_reads_after_accumulation", "accumulated_unordered")
    touched = ("bucket_is_exclusive_while_reducing", "touched_in_flight")
    read = ("wait_orders_reads_after_reduce", "read_before_reduced")
    known = {
        left: Clues(
            frozenset({CauseSign("a"), CauseSign("b")}),
            clues("", "a", "b").explained_by,
        ),
        touched: clues("a", "a"),
        read: clues("b", "b"),
    }
    assert other_forms([left, touched, read], known) == {left: touched}


def test_an_order_does_not_scale_sums() -> None:
    read = ("wait_orders_reads_after_reduce", "read_before_reduced")
    assert may_cause(read, (GRADIENT, "stale"))
    assert not may_cause(read, (GRADIENT, "scaled"))
