"""What follows from a cause that lies elsewhere is a form of it, and nothing else is."""

from syncverify.judge.consequences import other_forms, shown_by
from syncverify.judge.signs import Circumstance, Clues
from syncverify.judge.violation import Violation
from syncverify.report.hints import certainty, hint_of
from tests.programs import violations
from tests.quality.planted.causes_elsewhere import (
    ONE,
    PAIR,
    TWO_STEPS,
    CopiesBackAnotherPart,
    InNodePrehooks,
    IsNotReset,
    MultipliesByFive,
    WithoutGradients,
)
from tests.quality.planted.planted import LIVE, VALUE, training


def test_a_gradient_that_is_not_there_yet_is_the_same_cause_in_a_prehook() -> None:
    hooks = {"hooks": InNodePrehooks.hooks}
    (found,) = violations(type("Subject", (WithoutGradients,), hooks), ONE)
    assert found.identity == (LIVE, "hook_too_early")


def test_the_hint_of_a_hook_that_is_too_early_names_the_right_one() -> None:
    assert "`register_post_accumulate_grad_hook`" in hint_of("hook_too_early")


def test_a_step_unlike_the_one_before_tells_nothing_of_state() -> None:
    found = violations(IsNotReset, training(shape=(3,), accumulations=(1, 2)))
    assert "not_reset" not in {each.cause for each in found}


def test_what_is_wrong_after_a_right_step_alone_is_a_form_of_state_not_reset() -> None:
    state = [v for v in violations(IsNotReset, TWO_STEPS) if v.cause == "not_reset"]
    unreduced = [
        v for v in violations(IsNotReset, TWO_STEPS) if v.cause == "not_reduced"
    ]
    assert unreduced, "the second step exchanged too little"
    clues = {
        each.identity: each.clues | shown_by(each.identity, each.evidence)
        for each in [*state, *unreduced]
    }
    assert set(other_forms([*clues], clues)) == {unreduced[0].identity}


def test_what_is_wrong_in_every_step_is_no_state() -> None:
    found = violations(MultipliesByFive, TWO_STEPS)
    state = Violation(VALUE, "not_reset", "")
    clues = {
        each.identity: each.clues | shown_by(each.identity, each.evidence)
        for each in [state, *found]
    }
    assert not clues[state.identity].explain(clues[found[0].identity])


def test_nothing_is_certain_of_a_result_where_ranks_send_other_gradients() -> None:
    found = violations(CopiesBackAnotherPart, PAIR)
    assert "result_dropped" not in {
        each.cause
        for each in found
        if certainty(each.cause, each.evidence).startswith("certain")
    }
    assert "bucket_mismatch" in {each.cause for each in found}


def test_a_disagreement_of_ranks_explains_that_a_second_play_differs() -> None:
    match = Violation("collectives_match_across_ranks", "bucket_mismatch", "")
    other = Violation(
        "subject_is_deterministic",
        "acts_otherwise",
        "",
        clues=Clues(explained_by=frozenset({frozenset({Circumstance.OTHER_CONTENTS})})),
    )
    clues = {
        each.identity: each.clues | shown_by(each.identity, each.evidence)
        for each in (match, other)
    }
    assert other_forms([*clues], clues) == {other.identity: match.identity}
