"""Process groups of a rank that is a process: they end without waiting for absent ranks.

A stand-in takes the place of NCCL: its `shutdown` never returns, as NCCL's after a collective
that has no peer, and its collectives move no data, as in a world of one rank.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future
from typing_extensions import override

from synchronizer import GradientSynchronizer
from syncverify.backends.messages import JobOutcome
from syncverify.backends.process_rank import Membership, play_rank
from syncverify.backends.torchrun import TorchrunBackend
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.sim.device.torch_internals import forget_backend
from syncverify.subjects.subject import resolve
from syncverify.trace.recorder import Recorder

ALONE = Scenario(
    MeshSpec((1,), ("dp",)), (ParameterSpec("w", (5,), ("R",)),), (1,), 2**20
)


class Raises(GradientSynchronizer):
    @override
    def wait(self) -> None:
        super().wait()
        raise ValueError("no")


class LooksAtArithmetic(GradientSynchronizer):
    @override
    def wait(self) -> None:
        super().wait()
        if torch.backends.cudnn.allow_tf32:  # on in a fresh process
            raise ValueError("convolutions may round")


class WaitingGroup(dist.ProcessGroup):
    def __init__(self, rank: int, size: int, said: list[Any]) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._said, self._name = said, ""

    @property
    @override
    def group_name(self) -> str:
        return self._name

    @override
    def _set_group_name(self, name: str) -> None:
        self._name = name

    def getBackendName(self) -> str:  # noqa: N802
        return "standin"

    @override
    def allreduce(self, *_: Any) -> dist.Work:
        future = torch.futures.Future[Any]()
        future.set_result(None)
        return _create_work_from_future(future)

    @override
    def shutdown(self) -> None:
        self._said.append("shutdown")

    @override
    def abort(self) -> None:
        self._said.append("abort")


@dataclass
class StandIn:
    said: list[Any] = field(default_factory=list)
    timeouts: list[timedelta] = field(default_factory=list)

    def create(
        self, _store: dist.Store, rank: int, size: int, timeout: timedelta
    ) -> dist.ProcessGroup:
        self.timeouts.append(timeout)
        return WaitingGroup(rank, size, self.said)


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    made = StandIn()
    dist.Backend.register_backend("standin", made.create, devices=["cpu"])
    yield made
    forget_backend("standin")


def played(subject: Any, stand_in: StandIn) -> list[Any]:
    membership = Membership(1, "standin", dist.HashStore(), 0, timedelta(seconds=5))

    def tell(outcome: JobOutcome) -> None:
        assert dist.is_initialized()
        assert outcome.harness_error is None, outcome.harness_error
        stand_in.said.append(outcome.fault and outcome.fault.identity)

    play_rank(
        membership, ALONE, resolve(subject), device=torch.device("cpu"),
        recorder=Recorder(), tell=tell,
    )  # fmt: skip
    assert not dist.is_initialized()
    return stand_in.said


def test_a_rank_tells_its_outcome_before_its_groups_end(stand_in: StandIn) -> None:
    assert played(GradientSynchronizer, stand_in) == [None, "shutdown"]


def test_after_a_fault_groups_are_aborted_and_not_shut_down(stand_in: StandIn) -> None:
    assert played(Raises, stand_in) == ["ValueError", "abort"]


def test_a_process_plays_in_exact_arithmetic(stand_in: StandIn) -> None:
    assert played(LooksAtArithmetic, stand_in) == [None, "shutdown"]


@pytest.fixture
def leader(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> TorchrunBackend:
    """Return the backend of a torchrun job of one process."""
    place = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    store = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    for name, value in (place | store).items():
        monkeypatch.setenv(name, value)
    transport: Any = "standin"
    return TorchrunBackend(transport, hang_timeout_seconds=7)


def test_the_leader_judges_before_a_collective_ends_the_process(
    leader: TorchrunBackend, stand_in: StandIn
) -> None:
    assert leader.run(ALONE, resolve(GradientSynchronizer)).fault is None
    assert min(stand_in.timeouts) >= timedelta(seconds=2 * 7)


def test_a_scenario_starts_when_the_groups_of_the_last_one_have_ended(
    leader: TorchrunBackend, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()
    monkeypatch.setattr(WaitingGroup, "shutdown", lambda _: may_end.wait())
    assert leader.run(ALONE, resolve(GradientSynchronizer)).fault is None
    threading.Timer(0.1, may_end.set).start()
    assert leader.run(ALONE, resolve(GradientSynchronizer)).fault is None
