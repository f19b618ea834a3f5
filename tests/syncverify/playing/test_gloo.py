"""Warm worker processes: reused, replaced, and never left behind."""

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from syncverify.errors import InternalError
from syncverify.playing.gloo import GlooBackend
from syncverify.processes import forked_process
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.subject import resolve
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.run import Run
from tests.programs import one_parameter

pytestmark = pytest.mark.slow

PAIR, ALONE = one_parameter(2, "w", (5,)), one_parameter(1, "w", (5,), 64)


class Naive(PlainGrads):
    """Sums every parameter by itself in wait(); subclasses misbehave."""

    def wait(self) -> None:
        for parameter in self.parameters:
            dist.all_reduce(parameter.grad.to_local())  # type: ignore[attr-defined]


class Disagrees(Naive):
    def wait(self) -> None:
        if dist.get_rank() == 0:
            dist.barrier()
        else:
            dist.all_reduce(torch.ones(100))


class Forks(Naive):
    """Goes on in two processes, as a slip around `os.fork` has it."""

    def unbind(self) -> None:
        os.fork()


class LeavesOnePeerless(Naive):
    """Rank 0 issues a collective that rank 1 does not, and waits for nothing."""

    def bind(self) -> None:
        self.group = dist.new_group()
        self.itself = self

    def wait(self) -> None:
        if dist.get_rank() == 1:
            return
        self.work = dist.all_reduce(torch.ones(5), group=self.group, async_op=True)


class LeavesOneOnAFault(LeavesOnePeerless):
    def wait(self) -> None:
        if dist.get_rank() == 1:
            raise KeyError("lost")
        super().wait()


class CollectsGarbage(Naive):
    def bind(self) -> None:
        gc.collect()


@pytest.fixture(scope="module")
def backend() -> Iterator[GlooBackend]:
    opened = GlooBackend(hang_timeout_seconds=1.5)
    yield opened
    opened.close()


def pids(backend: GlooBackend) -> list[int]:
    workers = backend._pool._workers
    return [workers[rank].process.pid for rank in sorted(workers)]


def play(backend: GlooBackend, subject: Any, scenario: Scenario = PAIR) -> Run:
    return backend.run(scenario, resolve(subject))


@pytest.mark.long
def test_processes_are_reused_also_by_a_smaller_world(backend: GlooBackend) -> None:
    assert play(backend, Naive).fault is None
    warm = pids(backend)
    assert len({*warm, os.getpid()}) == 3
    run = play(backend, Naive, ALONE)
    assert (run.fault, len(run.ranks)) == (None, 1)
    assert play(backend, Naive).fault is None
    assert pids(backend) == warm


def test_class_of_a_test_travels_by_value_and_its_gradients_come_back(
    backend: GlooBackend,
) -> None:
    run = play(backend, Naive)
    first, second = (ranks.at("reduced", 0) for ranks in run.ranks)
    assert first.gradients["w"].any()
    assert torch.equal(first.gradients["w"], second.gradients["w"])
    (launch,) = (e for e in run.ranks[1].trace if isinstance(e, CollectiveLaunch))
    assert launch.signature == ("all_reduce", "SUM", "float32", 5)
    assert launch.ranks == (0, 1)
    assert launch.parameters == ("w",)
    assert "test_gloo.py:" in str(launch.source)


@pytest.mark.long
@pytest.mark.parametrize("leaving", [LeavesOnePeerless, LeavesOneOnAFault])
def test_a_collective_without_a_peer_holds_no_later_scenario_up(
    backend: GlooBackend, leaving: Any
) -> None:
    """The end of its group joins the thread that waits for the peer, which lives on."""
    play(backend, leaving)
    assert play(backend, CollectsGarbage, ALONE).fault is None


@pytest.mark.long
def test_a_copy_of_a_rank_answers_in_no_scenario(backend: GlooBackend) -> None:
    """A copy has the connection of the worker, and would tell the same outcome again."""
    other = one_parameter(2, "v", (5,), 64)
    for scenario in (PAIR, other) * 5:
        run = play(backend, Forks, scenario)
        assert run.fault is None
        (name,) = (each.name for each in scenario.parameters)
        observed = [rank.at("reduced", 0) for rank in run.ranks]
        assert [each and [*each.gradients] for each in observed] == [[name], [name]]


@pytest.mark.long
def test_ranks_that_disagree_are_named(backend: GlooBackend) -> None:
    """tests/quality/test_hangs.py has ranks that skip collectives, spin, raise and exit."""
    fault = play(backend, Disagrees).fault
    assert (fault.kind, fault.ranks) == ("collective_mismatch", (0, 1))
    first, second = fault.details
    assert first.startswith("rank 0: barrier over ranks ")
    assert second.startswith(
        "rank 1: all_reduce SUM of 100 x float32 over ranks [0, 1]"
    )
    assert play(backend, Naive).fault is None


def test_workers_that_cannot_start_are_our_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setattr(forked_process, "_templates", {})
    fresh = GlooBackend()
    with pytest.raises(InternalError) as caught:
        play(fresh, Naive)
    assert str(caught.value).startswith("a worker process did not start")
    fresh.close()


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="other kernels show no descriptors")
def test_descriptors_and_threads_of_a_worker_stay_few(backend: GlooBackend) -> None:
    """torch's caches keep a mesh for each shape that was ever redistributed."""
    for size in range(1, 61):
        parameter = ParameterSpec("w", (size,), ("S0", "R"), grad_dtype="bfloat16")
        mesh = MeshSpec((1, 1), ("dp", "tp"))
        scenario = Scenario(mesh, (parameter,), (1,), 64)
        assert backend.run(scenario, resolve("synchronizer")).fault is None
    process = Path(f"/proc/{pids(backend)[0]}")
    # One of each for each of the 60 scenarios would be more.
    assert len([*(process / "fd").iterdir()]) < 40
    assert len([*(process / "task").iterdir()]) < 20
