"""Any world size, no data: ranks are judged by their actions."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from syncverify.command.verification.reported_search import run_search
from syncverify.judge.properties import check
from syncverify.playing.fake import FakeBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.settings import Settings
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.subject import resolve
from tests.programs import one_parameter

WIDE = Scenario(
    MeshSpec((8, 2), ("dp", "tp")),
    (ParameterSpec("w", (19,), ("R", "S0")), ParameterSpec("b", (3,), ("R", "R"))),
    (2, 1),
    2**20,
)
ONE_PARAMETER = one_parameter(16, "w", (5,))


HUGE = Scenario(
    MeshSpec((8, 8192), ("dp", "tp")),
    (ParameterSpec("w", (3, 5), ("R", "S0")), ParameterSpec("b", (3,), ("R", "R"))),
    (1, 1, 1),
    2**20,
)


class NeverReduces(PlainGrads):
    """A mistake that shows in the data or in the trace only."""

    def wait(self) -> None: ...


class LeavesHookOnLastRank(NeverReduces):
    def wait(self) -> None:
        dist.all_reduce(torch.zeros(5))

    def unbind(self) -> None:
        if dist.get_rank() == dist.get_world_size() - 1:
            for parameter in self.parameters:
                parameter.register_post_accumulate_grad_hook(lambda p: None)


class RaisesOnLastRank(NeverReduces):
    def bind(self) -> None:
        if dist.get_rank() == dist.get_world_size() - 1:
            raise ValueError("last")


@pytest.mark.long
def test_a_few_ranks_play_for_a_world_of_65536() -> None:
    subject = resolve("synchronizer")
    run = FakeBackend().run(HUGE, subject)
    assert run.fault is None
    assert len(run.ranks) == 65_536
    played = [rank for rank, rank_run in enumerate(run.ranks) if rank_run.trace]
    columns = (0, 1, 2, 3, 4096, 8191)  # three hold a row of w each
    assert played == [8192 * row + column for row in (0, 3, 7) for column in columns]
    assert check(HUGE, run, subject.capabilities) == []


def test_a_fault_in_a_large_world_names_the_global_rank() -> None:
    wide = replace(ONE_PARAMETER, mesh=MeshSpec((4096,), ("dp",)))
    run = FakeBackend().run(wide, resolve(RaisesOnLastRank))
    assert (run.fault.identity, run.fault.ranks) == ("ValueError", (4095,))


def violations(subject: Any) -> list[tuple[str, str, tuple[int, ...]]]:
    found = resolve(subject)
    run = FakeBackend().run(ONE_PARAMETER, found)
    judged = check(ONE_PARAMETER, run, found.capabilities)
    return [(v.property, v.cause, v.ranks) for v in judged]


@pytest.mark.slow
def test_missing_reductions_show_without_data() -> None:
    assert violations(NeverReduces) == [
        ("each_bucket_reduced_once_per_step", "not_reduced", tuple(range(16)))
    ]


def test_a_hook_left_on_one_rank_shows() -> None:
    assert violations(LeavesHookOnLastRank) == [
        ("unbind_restores_parameters", "hook_left", (15,))
    ]


@pytest.mark.slow
def test_backward_on_other_threads_is_no_violation() -> None:
    subject = resolve("synchronizer")
    mesh = MeshSpec((2, 2), ("dp", "tp"))
    scenario = replace(WIDE, mesh=mesh, backward="on_threads")
    run = FakeBackend().run(scenario, subject)
    assert check(scenario, run, subject.capabilities) == []


@pytest.mark.long
def test_what_ranks_agree_on_by_data_is_not_tried() -> None:
    names = {"event=raise_in_backward", "readiness=by_rank"}
    asked = Capabilities(features=frozenset(names))
    subject = resolve("synchronizer", asked)
    report = run_search(subject, FakeBackend(), Settings(ranks=2, examples=10, seed=0))
    assert report.violations == ()
    assert report.explored[-1] == f"not tried on fake: {', '.join(sorted(names))}"
    assert "by_rank" not in str(report.coverage)
    assert "raise_in_backward" not in str(report.coverage)
