"""Gradients on their owner alone: owners are judged, and other ranks are not."""

import pytest
import torch

from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.properties.registry import judge_run
from syncverify.judge.properties.values import (
    gradient_equals_reference,
    replicas_agree,
)
from syncverify.judge.reference import reference
from syncverify.judge.violation import Violation
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.trace.run import Observation, RankRun, Run

OWNER, ALL = Capabilities(gradients="owner"), Capabilities()
WEIGHT = ParameterSpec("w", (4,), ("R",))
TWO_STEPS = Scenario(MeshSpec((3,), ("dp",)), (WEIGHT,), (1, 1), 2**20)
ORACLE = reference(TWO_STEPS, OWNER)


def judged(
    *right_on: set[int],
    capabilities: Capabilities = OWNER,
    owned_by: set[int] | None = None,
    lost: bool = False,
) -> Judgement:
    """Judge a run whose gradients are right on some ranks in each step, else local."""
    rank_runs = []
    for rank in range(3):
        rank_run = RankRun()
        if owned_by is not None:
            rank_run.owned = frozenset({"w"} if rank in owned_by else ())
        for step, ranks in enumerate(right_on):
            own = ORACLE.local(WEIGHT, rank, step, [0])
            total = ORACLE.reduced(WEIGHT, rank, step)
            if lost:
                total = total - ORACLE.local(WEIGHT, 2, step, [0])
            seen = (total if rank in ranks else own).float()
            rank_run.observations.append(
                Observation("reduced", step, None, {"w": seen})
            )
        rank_runs.append(rank_run)
    run = Run("sim", tuple(rank_runs))
    return Judgement(TWO_STEPS, run, reference(TWO_STEPS, capabilities))


def found(judgement: Judgement) -> list[Violation]:
    return [*gradient_equals_reference(judgement), *replicas_agree(judgement)]


@pytest.mark.parametrize("owned_by", [None, {1}])
def test_one_rank_that_is_right_in_all_steps_is_enough(
    owned_by: set[int] | None,
) -> None:
    assert found(judged({0, 1}, {1}, owned_by=owned_by)) == []


@pytest.mark.parametrize(("owned_by", "owner"), [(None, 0), ({0}, 0), ({1}, 1)])
def test_another_owner_in_a_later_step_is_found(
    owned_by: set[int] | None, owner: int
) -> None:
    (one,) = found(judged({0}, {1}, owned_by=owned_by))
    step, other = (1, 1) if owner == 0 else (0, 0)
    assert (one.cause, one.rank, one.parameter) == ("wrong_owner", owner, "w")
    assert one.summary == (
        f"gradient of 'w' is right on rank {other} in step {step}, and not on its "
        f"owner, rank {owner}"
    )


def test_owners_that_are_named_are_all_judged() -> None:
    assert found(judged({0, 1}, {0, 1}, owned_by={0, 1})) == []
    (one,) = found(judged({0, 1}, {0}, owned_by={0, 1}))
    assert (one.cause, one.rank) == ("wrong_owner", 1)


def test_replicas_that_nobody_owns_are_found() -> None:
    (one,) = found(judged({0}, {0}, owned_by=set()))
    assert one.cause == "no_owner"
    assert one.summary == (
        "expected an owner of 'w' among ranks [0, 1, 2], but owner() is false on each"
    )


@pytest.mark.parametrize("owned_by", [None, {1}])
def test_a_contribution_that_is_lost_is_found_on_the_owner(
    owned_by: set[int] | None,
) -> None:
    findings = found(judged({1}, {1}, owned_by=owned_by, lost=True))
    causes = {(each.cause, each.rank) for each in findings}
    assert causes == {("rank_contribution_missing", 1)}


def test_reports_count_no_comparison_of_replicas() -> None:
    run = judged({0}, {0}).run
    applied = judge_run(TWO_STEPS, run, OWNER).applied
    assert "gradient_equals_reference" in applied
    assert "replicas_agree" not in applied
    assert "replicas_agree" in judge_run(TWO_STEPS, run, ALL).applied


def test_an_owner_of_wrong_dtype_is_not_right() -> None:
    judgement = judged({0}, {0})
    for rank_run in judgement.run.ranks:
        for seen in rank_run.observations:
            seen.gradients["w"] = seen.gradients["w"].to(torch.float64)  # type: ignore[index,union-attr]
    assert {each.cause for each in found(judgement)} == {"wrong_dtype"}
