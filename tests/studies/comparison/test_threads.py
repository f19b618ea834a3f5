"""Ranks on torch's threaded group: values, errors, and hangs that end."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
import torch
import torch.distributed as dist
from torch import nn

from studies.comparison.cases import Case
from studies.comparison.methods.threaded_group import THREADED_GROUP
from studies.comparison.one_worker import OneWorker
from studies.comparison.threads import play_on_threads
from syncverify.backends.packed_outcomes import unpack_result
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.reference import reference
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import resolve
from syncverify.trace.run import Run

PAIR = Scenario(MeshSpec((2,), ("dp",)), (ParameterSpec("p", (2,), ("R",)),), (1,), 64)


class AbsentOnOddRanks:
    """Rank 0 waits for a sum in which no other rank takes part; they may raise instead."""

    raises = False

    def __init__(
        self, param_groups: list[list[nn.Parameter]], bucket_mb: float, count: int
    ) -> None:
        pass

    def bind(self) -> None:
        if dist.get_rank() == 0:
            dist.all_reduce(torch.zeros(1))
        elif self.raises:
            raise RuntimeError("no")

    def wait(self) -> None: ...
    def zero_grad(self) -> None: ...
    def unbind(self) -> None: ...


class RaisesOnOddRanks(AbsentOnOddRanks):
    raises = True


@pytest.fixture
def backend() -> Iterator[OneWorker]:
    worker = OneWorker(
        "threads", "studies.comparison.threads", hang_timeout_seconds=1.0
    )
    with closing(worker) as opened:
        yield opened


@pytest.mark.nightly
def test_a_hang_ends(backend: OneWorker) -> None:
    fault = backend.run(PAIR, resolve(AbsentOnOddRanks)).fault
    assert fault is not None
    assert fault.kind == "deadlock"


@pytest.mark.nightly
def test_an_error_is_reported_while_other_ranks_wait(backend: OneWorker) -> None:
    fault = backend.run(PAIR, resolve(RaisesOnOddRanks)).fault
    assert fault is not None
    assert fault.summary == "rank 1 raised RuntimeError in step 0, bind: no"


@pytest.mark.slow
def test_values_are_those_of_the_subject(case: Callable[[str], Case]) -> None:
    found = case("avg-divides-by-numel")
    scenario, judge = found.reproducer.scenario, THREADED_GROUP.judge
    alarms = []
    for subject in (found.defect, found.twin):
        answer = play_on_threads(scenario, subject)
        run = Run("threads", tuple(map(unpack_result, answer.results)), answer.fault)
        right = reference(scenario, subject.capabilities)
        alarms.append(judge(Judgement(scenario, run, right)).alarmed)
    assert alarms == [True, False]
