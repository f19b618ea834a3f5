"""A few ranks play for a large world: those that share a communicator are compared."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from syncverify.judge.properties import check
from syncverify.judge.violation import Violation
from syncverify.playing.fake import FakeBackend
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.bugbank.bases.main_grads import MainGrads
from syncverify.subjects.bugbank.bases.view_buckets import ViewBuckets
from syncverify.subjects.bugbank.cross_rank import CutsByAllBytes, TakesAxesInTurn
from syncverify.subjects.subject import resolve

MESH = MeshSpec((64, 64), ("dp", "tp"))
WEIGHT = ParameterSpec("w", (100,), ("R", "S0"))
BIAS = ParameterSpec("b", (3,), ("R", "R"))
GRID = Scenario(MESH, (WEIGHT, BIAS), (2,), 2**20)
# The first 49 tp coordinates hold 2 elements of w, the next one holds 1, the others none.
UNEVEN = Scenario(
    MESH,
    (
        ParameterSpec("w", (99,), ("R", "S0")),
        ParameterSpec("b", (2,), ("R", "R")),
        ParameterSpec("c", (2,), ("R", "R")),
    ),
    (1,),
    16,
)
# The first 7 of 8 tp coordinates hold 2 elements of w, and the last one holds 1.
SMALLER = replace(
    UNEVEN,
    mesh=MeshSpec((8, 8), ("dp", "tp")),
    parameters=(ParameterSpec("w", (15,), ("R", "S0")), *UNEVEN.parameters[1:]),
)


def violations(subject: Any, scenario: Scenario) -> list[Violation]:
    found = resolve(subject)
    run = FakeBackend().run(scenario, found)
    return [
        violation
        for violation in check(scenario, run, found.capabilities)
        if violation.property
        in {"collectives_match_across_ranks", "launch_order_agrees"}
    ]


class LastSkips(ViewBuckets):
    def wait(self) -> None:
        if dist.get_rank() != dist.get_world_size() - 1:
            dist.all_reduce(torch.zeros(1))
        super().wait()


class LeadersTalk(ViewBuckets):
    """Right: a rank without elements on a communicator does not use it."""

    def bind(self) -> None:
        rank = dist.get_rank()
        if rank < 64:
            self.leaders = dist.new_group(range(64), use_local_synchronization=True)
        super().bind()

    def wait(self) -> None:
        if dist.get_rank() < 64:
            dist.all_reduce(torch.zeros(1), group=self.leaders)
        super().wait()


@pytest.mark.long
@pytest.mark.parametrize(
    ("subject", "scenario"),
    [
        ("synchronizer", GRID),
        ("synchronizer", UNEVEN),
        (ViewBuckets, UNEVEN),
        (MainGrads, GRID),
        (LeadersTalk, UNEVEN),
    ],
)
def test_correct_programs_are_silent(subject: Any, scenario: Scenario) -> None:
    assert violations(subject, scenario) == []


@pytest.mark.long
def test_a_rank_that_skips_a_collective_is_named() -> None:
    (found,) = violations(LastSkips, GRID)
    assert found.cause == "collective_missing"
    assert found.ranks == (4095,)
    assert "over ranks [0, 1, ..., 4095] (4096), at " in found.summary


@pytest.mark.slow
@pytest.mark.parametrize(
    ("subject", "scenario", "cause"),
    [
        (CutsByAllBytes, SMALLER, "collective_mismatch"),
        (TakesAxesInTurn, GRID, "deadlock_hazard"),
    ],
)
def test_planted_defects_show_without_data(
    subject: Any, scenario: Scenario, cause: str
) -> None:
    assert cause in {violation.cause for violation in violations(subject, scenario)}
