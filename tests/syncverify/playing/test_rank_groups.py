"""Process groups of a rank that is a process: they end without waiting for absent ranks.

A stand-in takes the place of NCCL: its `shutdown` never returns, as NCCL's after a collective
without a peer, and collectives move no data, as in a world of one rank.
"""

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future
from torch.distributed import distributed_c10d as c10d

from syncverify.playing import torchrun
from syncverify.playing.messages import JobOutcome, pack
from syncverify.playing.process_rank import RankPart, Seat, play_rank
from syncverify.playing.rank_groups import KeptTransports
from syncverify.playing.torchrun import TorchrunBackend
from syncverify.sim.device.torch_internals import forget_backend
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.subject import resolve
from syncverify.synchronizer import GradientSynchronizer
from syncverify.trace.recorder import Recorder
from syncverify.trace.run import Fault, RankRun
from tests.programs import one_parameter
from tests.syncverify.playing.answers import ENDED, LAUNCH

ALONE, PAIR = (one_parameter(ranks, "w", (5,)) for ranks in (1, 2))


class Raises(GradientSynchronizer):
    def wait(self) -> None:
        super().wait()
        raise ValueError("no")


class LooksAtArithmetic(GradientSynchronizer):
    def wait(self) -> None:
        super().wait()
        if torch.backends.cudnn.allow_tf32:  # on in a fresh process
            raise ValueError("convolutions may round")


class Idle(PlainGrads):
    """Asks nothing of a peer, which is not there."""

    def wait(self) -> None: ...


class WaitingGroup(dist.ProcessGroup):
    def __init__(self, rank: int, size: int, calls: list[Any]) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._calls, self._name = calls, ""

    @property
    def group_name(self) -> str:
        return self._name

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def getBackendName(self) -> str:  # noqa: N802
        return "standin"

    def allreduce(self, *_: Any) -> dist.Work:
        future = torch.futures.Future[Any]()
        future.set_result(None)
        return _create_work_from_future(future)

    def shutdown(self) -> None:
        self._calls.append("shutdown")

    def abort(self) -> None:
        self._calls.append("abort")


@dataclass
class StandIn:
    calls: list[Any] = field(default_factory=list)
    timeouts: list[timedelta] = field(default_factory=list)

    def create(
        self, _store: dist.Store, rank: int, size: int, timeout: timedelta
    ) -> dist.ProcessGroup:
        self.timeouts.append(timeout)
        return WaitingGroup(rank, size, self.calls)


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    made = StandIn()
    dist.Backend.register_backend("standin", made.create, devices=["cpu"])
    yield made
    forget_backend("standin")


def part_of(number: int, transport: str, store: dist.Store, subject: Any) -> RankPart:
    seat = Seat(transport, store, 0, timedelta(seconds=5), torch.device("cpu"))
    return RankPart(number, seat, ALONE, resolve(subject), Recorder())


def played(subject: Any, stand_in: StandIn) -> list[Any]:
    def tell(outcome: JobOutcome) -> None:
        assert dist.is_initialized()
        assert outcome.harness_error is None, outcome.harness_error
        stand_in.calls.append(outcome.fault and outcome.fault.identity)

    play_rank(part_of(1, "standin", dist.HashStore(), subject), tell)
    assert not dist.is_initialized()
    return stand_in.calls


def test_a_rank_tells_its_outcome_before_its_groups_end(stand_in: StandIn) -> None:
    assert played(GradientSynchronizer, stand_in) == [None, "shutdown"]


def test_after_a_fault_groups_are_aborted_and_not_shut_down(stand_in: StandIn) -> None:
    assert played(Raises, stand_in) == ["ValueError", "abort"]


def test_a_process_plays_in_exact_arithmetic(stand_in: StandIn) -> None:
    assert played(LooksAtArithmetic, stand_in) == [None, "shutdown"]


def leader_of(
    num_ranks: int,
    store: dist.Store,
    monkeypatch: pytest.MonkeyPatch,
    transport: Any = "standin",
) -> TorchrunBackend:
    """Return the backend of rank 0 of a torchrun job; other ranks are the test's part."""
    places = [f"machine {rank}" for rank in range(num_ranks)]
    monkeypatch.setattr(dist, "rendezvous", lambda _: iter([(store, 0, num_ranks)]))
    monkeypatch.setattr(torchrun, "call_roll", lambda *_, **__: places)
    monkeypatch.setitem(torchrun._SILENCE_SECONDS, "standin", 20.0)
    return TorchrunBackend(transport, resolve(Idle), hang_timeout_seconds=7)


@pytest.fixture
def leader(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TorchrunBackend]:
    made = leader_of(1, dist.HashStore(), monkeypatch)
    yield made
    made._player.join()  # the next test plays with other groups


def test_the_leader_judges_before_a_collective_ends_the_process(
    leader: TorchrunBackend, stand_in: StandIn
) -> None:
    assert leader.run(ALONE, resolve(GradientSynchronizer)).fault is None
    assert min(stand_in.timeouts) >= timedelta(seconds=10 * 7)


def test_a_scenario_starts_when_the_groups_of_the_last_one_have_ended(
    leader: TorchrunBackend, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end, wait = threading.Event(), leader._player.join

    def wait_for_player(*args: Any) -> None:
        may_end.set()
        wait(*args)

    monkeypatch.setattr(leader._player, "join", wait_for_player)
    monkeypatch.setattr(WaitingGroup, "shutdown", lambda _: may_end.wait())
    leader.run(ALONE, resolve(GradientSynchronizer))
    may_end.clear()
    assert leader.run(ALONE, resolve(GradientSynchronizer)).fault is None


def test_torch_ends_no_process_before_the_verdict(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", raising=False)
    monkeypatch.setattr(torchrun, "own_device", lambda *_, **__: torch.device("cpu"))
    leader_of(1, dist.HashStore(), monkeypatch, transport="nccl").close()
    assert os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"
    monkeypatch.setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "")  # restored afterwards


class MakesGroups(GradientSynchronizer):
    """Uses two groups of the same ranks, and ends the second one itself."""

    transports: ClassVar[list[list[Any]]] = []
    names: ClassVar[list[str]] = []

    def bind(self) -> None:
        super().bind()
        groups = [dist.new_group([0]), dist.new_group([0])]
        self.transports.append(
            [each._get_backend(torch.device("cpu")) for each in groups]
        )
        self.names += [each.group_name for each in groups]
        for each in groups:
            dist.all_reduce(torch.ones(3), group=each)
        dist.destroy_process_group(groups[1])


class MakesGroupsAndRaises(MakesGroups):
    def wait(self) -> None:
        super().wait()
        raise ValueError("no")


def play_on_gloo(subject: Any, number: int, kept: KeptTransports) -> None:
    outcomes: list[JobOutcome] = []
    play_rank(part_of(number, "gloo", STORE, subject), outcomes.append, kept)
    assert outcomes[0].harness_error is None, outcomes[0].harness_error


STORE = dist.HashStore()


def test_transports_are_kept_until_a_fault_and_groups_are_not() -> None:
    MakesGroups.transports.clear()
    MakesGroups.names.clear()
    kept = KeptTransports()
    for number, subject in enumerate(
        (MakesGroups, MakesGroupsAndRaises, MakesGroups), start=1
    ):
        play_on_gloo(subject, number, kept)
    first, second, third = MakesGroups.transports
    assert first[0] is not first[1]
    assert all(one is other for one, other in zip(first, second, strict=True))
    assert not any(one is other for one in first for other in third)
    assert MakesGroups.names == MakesGroups.names[:2] * 3


def test_wrapped_transports_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    MakesGroups.transports.clear()
    monkeypatch.setattr(dist, "get_debug_level", lambda: dist.DebugLevel.DETAIL)
    kept = KeptTransports()
    for number in (11, 12):
        play_on_gloo(MakesGroups, number, kept)
    first, second = MakesGroups.transports
    assert not any(one is other for one in first for other in second)


class Nccl2:
    """Stands for `ProcessGroupNCCL2`, which is not in every build of torch."""

    Options = object
    calls: ClassVar[list[str]] = []

    def __init__(self, *_: Any) -> None:
        pass

    def abort(self) -> None:
        self.calls.append("abort")


class Nccl(Nccl2):
    """Stands for `ProcessGroupNCCL`, which aborts its communicators together."""

    def _group_start(self) -> None:
        self.calls.append("start")

    def _group_end(self) -> None:
        self.calls.append("end")


@pytest.mark.parametrize(
    ("name", "stand_in", "around"),
    [
        ("ProcessGroupNCCL", Nccl, (["start"], ["end"])),
        ("ProcessGroupNCCL2", Nccl2, ([], [])),
        ("ProcessGroupNCCLLazy", Nccl2, ([], [])),
    ],
)
def test_communicators_are_kept_and_aborted_together(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    stand_in: type[Nccl2],
    around: tuple[list[str], list[str]],
) -> None:
    Nccl2.calls.clear()
    monkeypatch.setattr(c10d, name, stand_in, raising=False)
    monkeypatch.setattr(
        c10d,
        "_new_process_group_helper",
        lambda *_, **__: getattr(c10d, name)("store", 0, 2, "options"),
    )
    kept = KeptTransports()
    rounds = []
    for _ in range(2):
        with kept.in_use():
            assert getattr(c10d, name).Options is stand_in.Options
            made = [
                c10d._new_process_group_helper(2, 0, ranks, "nccl", None, "name")
                for ranks in ([], [0, 1], [1, 0])
            ]
            assert isinstance(made[0], getattr(c10d, name))
            rounds.append(made)
    assert all(one is other for one, other in zip(*rounds, strict=True))
    assert len({id(each) for each in rounds[0]}) == 3
    kept.drop()
    start, end = around
    assert Nccl2.calls == [*start, "abort", "abort", "abort", *end]


@pytest.fixture
def with_peer(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> tuple[TorchrunBackend, dist.Store]:
    """Return the leader of a job of two processes, and the store of both."""
    store = dist.HashStore()
    return leader_of(2, store, monkeypatch), store


def answer(store: dist.Store, result: RankRun, fault: Fault | None = None) -> None:
    store.set("outcome/1/1", pack(JobOutcome(pack(result), fault)))
    if fault is not None:
        store.set("fault/1", "")


def test_a_collective_without_a_peer_ends_an_epoch(
    with_peer: tuple[TorchrunBackend, dist.Store],
) -> None:
    leader, store = with_peer
    answer(store, RankRun(trace=[LAUNCH]))
    assert leader.run(PAIR, resolve(Idle)).fault is None
    store.set("outcome/2/1", pack(ENDED))
    leader.run(PAIR, resolve(Idle))
    store.set("outcome/3/1", pack(ENDED))
    leader.run(PAIR, resolve(Idle))
    epochs = [json.loads(store.get(f"job/{n}"))["epoch"] for n in (1, 2, 3)]
    assert epochs == [0, 1, 1]


class WaitsForDevice(Idle):
    """Waits as the host does for a GPU that waits for a peer."""

    released = threading.Event()

    def wait(self) -> None:
        self.released.wait()


def test_a_rank_that_waits_for_a_raised_peer_is_released(
    with_peer: tuple[TorchrunBackend, dist.Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, store = with_peer
    monkeypatch.setattr(torchrun, "GRACE_SECONDS", 0)
    monkeypatch.setattr(leader._player._kept, "abort", WaitsForDevice.released.set)
    answer(store, RankRun(), Fault("raised", (1,), "rank 1 raised"))
    run = leader.run(PAIR, resolve(WaitsForDevice))
    assert run.fault.ranks == (1,)
    assert not leader.is_lost
    assert run.ranks[0].trace
    assert not run.ranks[0].observations
