"""Causes of gradients between micro-batches, where the end of the step tells more."""

from dataclasses import replace

import pytest
import torch

from syncverify.judge.properties.collectives import (
    accumulation_is_local_until_reduced,
    each_bucket_reduced_once_per_step,
)
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.reference import reference
from syncverify.judge.violation import Circumstance, Violation
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.trace.records import CollectiveLaunch, Moment, SubjectReturn
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.run import Observation, RankRun, Run
from tests.syncverify.judge.properties.handmade_traces import launch

WEIGHT = ParameterSpec("w", (4,), ("R",))
SCENARIO = Scenario(MeshSpec((2,), ("dp",)), (WEIGHT,), (2,), 2**20)
ORACLE = reference(SCENARIO, Capabilities())
IN_WAIT = Moment("wait", 0)


def summed(*micro_batches: int, ranks: tuple[int, ...] = (0, 1)) -> torch.Tensor:
    parts = [ORACLE.local(WEIGHT, rank, 0, micro_batches) for rank in ranks]
    return torch.stack(parts).sum(dim=0)


def launched(moment: Moment, sent: torch.Tensor) -> CollectiveLaunch:
    contents = (sent.float().numpy().tobytes(),)
    region = MemoryRegion(0, 0, 16)
    return launch("dp", (0, 1), 7, moment=moment, regions=(region,), contents=contents)


def found(*events: CollectiveLaunch, **seen: torch.Tensor) -> list[Violation]:
    """Judge rank 0; observations are named by their point."""
    observations = [
        Observation(point, 0, 0 if point == "accumulated" else None, {"w": own.float()})
        for point, own in seen.items()
    ]
    rank_run = RankRun(observations, [*events, SubjectReturn(IN_WAIT)])
    judgement = Judgement(SCENARIO, Run("sim", (rank_run, RankRun())), ORACLE)
    return list(accumulation_is_local_until_reduced(judgement))


def test_zeros_are_a_lost_micro_batch_where_later_ones_are_there() -> None:
    (lost,) = found(accumulated=torch.zeros(4), reduced=summed(1))
    assert lost.cause == "micro_batch_missing"
    assert "micro-batch 0 of rank 0 is missing" in lost.summary


@pytest.mark.parametrize("at_the_end", [{}, {"reduced": summed(0, 1)}])
def test_zeros_without_such_an_end_were_never_written(
    at_the_end: dict[str, torch.Tensor],
) -> None:
    (written,) = found(accumulated=torch.zeros(4), **at_the_end)
    assert written.cause == "never_written"


def on_arrival(last: torch.Tensor) -> list[CollectiveLaunch]:
    each = [launched(Moment("backward", 0, m), summed(m, ranks=(0,))) for m in (0, 1)]
    return [*each, launched(IN_WAIT, last)]


def test_sums_that_are_summed_again_are_not_early() -> None:
    (twice,) = found(*on_arrival(summed(0, 1)), reduced=2 * summed(0, 1))
    assert twice.cause == "reduced_twice"
    assert twice.summary == (
        "rank 0 reduced in micro-batch 0 of 2 (step 0), and later reduced the result again: "
        "all_reduce SUM of 4 x float32 over ranks [0, 1], at a.py:7 in dp"
    )


def test_sums_that_others_were_added_to_are_early() -> None:
    later = summed(0) + summed(1, ranks=(0,))
    (early,) = found(*on_arrival(later), reduced=2 * summed(0) + summed(1))
    assert early.cause == "reduced_early"


def test_a_step_that_reduces_early_after_a_right_one_has_a_sign_of_it() -> None:
    scenario = replace(SCENARIO, accumulations=(2, 2))
    reduction = launch("dp", (0, 1), 0, [("w", 0)], moment=Moment("backward", 1, 0))
    run = Run("sim", (RankRun(trace=[reduction]), RankRun()))
    oracle = reference(scenario, Capabilities())
    (early,) = accumulation_is_local_until_reduced(Judgement(scenario, run, oracle))
    assert early.cause == "reduced_early"
    assert Circumstance.AFTER_RIGHT_STEP in early.clues.shows


@pytest.mark.parametrize("wrong_rank", [0, 1])
def test_what_a_rank_reduced_unseen_is_judged_by_its_own_gradients(
    wrong_rank: int,
) -> None:
    """Nothing was launched, and one rank has the right sums all the same."""
    rank_runs = []
    for rank in range(2):
        own = summed(0) if rank == wrong_rank else summed(0, 1)
        observation = Observation("reduced", 0, None, {"w": own.float()})
        rank_runs.append(RankRun([observation], [SubjectReturn(IN_WAIT)]))
    judged = Judgement(SCENARIO, Run("sim", tuple(rank_runs)), ORACLE)
    (violation,) = each_bucket_reduced_once_per_step(judged)
    assert (violation.cause, violation.rank) == ("not_reduced", wrong_rank)
