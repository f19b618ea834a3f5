"""Methods that look at values: the values are the same on every backend."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from studies.comparison.cases import Case
from studies.comparison.methods.allclose import replicas_are_close
from studies.comparison.methods.harness import all_properties_hold
from studies.comparison.methods.loss_parity import losses_agree
from studies.comparison.methods.threaded_group import values_are_right
from studies.comparison.rigs import Rigs
from studies.comparison.verdicts import Verdict
from syncverify.judge.properties.judgement import Judgement
from syncverify.trace.run import Observation

Judge = Callable[[Judgement], Verdict]
METHODS = [replicas_are_close, losses_agree, values_are_right, all_properties_hold]
SAME_ON_ALL, DIVERGES, NEVER_WRONG = (
    "avg-divides-by-numel",
    "handles-never-kept",
    "reduction-never-overlaps",
)


def play(entry: Case, rigs: Rigs, *, twin: bool = False) -> Judgement:
    subject = entry.twin if twin else entry.defect
    return rigs.play("sim, trained", entry, subject)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "caught_by"),
    [
        (SAME_ON_ALL, [losses_agree, values_are_right, all_properties_hold]),
        (DIVERGES, METHODS),
        (NEVER_WRONG, [all_properties_hold]),
    ],
)
def test_defects_are_caught_by_those_that_look_there(
    entry: str, caught_by: list[Judge], case: Callable[[str], Case], rigs: Rigs
) -> None:
    played = play(case(entry), rigs)
    assert [judge for judge in METHODS if judge(played).alarmed] == caught_by


@pytest.mark.parametrize("entry", [SAME_ON_ALL, DIVERGES, NEVER_WRONG])
def test_twins_are_left_alone(
    entry: str, case: Callable[[str], Case], rigs: Rigs
) -> None:
    played = play(case(entry), rigs, twin=True)
    assert [judge for judge in METHODS if judge(played).alarmed] == []


def scaled(played: Judgement, factor: float) -> Judgement:
    """Return a run in which gradients after `wait()` are too large by a factor."""

    def change(seen: Observation) -> Observation:
        if seen.point != "reduced":
            return seen
        gradients = {
            n: None if g is None else g * factor for n, g in seen.gradients.items()
        }
        return replace(seen, gradients=gradients)

    ranks = tuple(
        replace(rank, observations=list(map(change, rank.observations)))
        for rank in played.run.ranks
    )
    return replace(played, run=replace(played.run, ranks=ranks))


def test_a_loss_within_tolerance_is_as_good_as_the_right_one(
    case: Callable[[str], Case], rigs: Rigs
) -> None:
    right = play(case(SAME_ON_ALL), rigs, twin=True)
    slightly, badly = scaled(right, 1.0001), scaled(right, 2.0)
    assert not losses_agree(slightly).alarmed
    assert values_are_right(slightly).alarmed
    assert losses_agree(badly).alarmed
