"""Traces of real collectives equal those of simulated ones."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from syncverify.playing.recording import CollectiveRecording
from syncverify.sim.machine import SimulatedMachine
from syncverify.trace.recorder import Recorder
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.regions import MemoryRegion, ParameterSlot
from syncverify.trace.source_lines import shown_path
from tests.programs import placed

F32, BF16 = torch.float32, torch.bfloat16
# torch 2.13 renamed some functions; the old names are the ones in use.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")


@pytest.fixture
def one_of_three() -> Iterator[None]:
    """Rank 1 of a group that answers without moving data."""
    dist.init_process_group("fake", rank=1, world_size=3, store=FakeStore())
    yield
    dist.destroy_process_group()


@pytest.fixture
def alone() -> Iterator[None]:
    """A real gloo group of this process alone."""
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield
    dist.destroy_process_group()


def launches(recorder: Recorder) -> list[CollectiveLaunch]:
    return [e for e in recorder.trace if isinstance(e, CollectiveLaunch)]


def record(program: Callable[[], object]) -> list[CollectiveLaunch]:
    recorder = Recorder()
    with CollectiveRecording(recorder):
        program()
    return launches(recorder)


def simulate(program: Callable[[], object]) -> list[CollectiveLaunch]:
    machine = SimulatedMachine(3)
    threads, _ = machine.run(lambda rank: program())
    assert [thread.error for thread in threads] == [None] * 3
    return launches(machine.recorders[1])


def several() -> list[torch.Tensor]:
    """As many tensors as there are ranks."""
    return [ones(3) for _ in range(dist.get_world_size())]


def at_root(tensors: list[torch.Tensor]) -> list[torch.Tensor] | None:
    return tensors if dist.get_rank() == 0 else None


def ones(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


# A call of three ranks, and its record: operation, reduction, dtype, contributed elements.
COLLECTIVES: dict[str, tuple[Callable[[], object], tuple[str, str, str, int]]] = {
    "all_reduce": (lambda: dist.all_reduce(ones(5)), ("all_reduce", "SUM", "float32", 5)),
    "broadcast": (lambda: dist.broadcast(ones(4), 0), ("broadcast", "", "float32", 4)),
    "reduce": (lambda: dist.reduce(ones(4), 0), ("reduce", "SUM", "float32", 4)),
    "all_gather": (lambda: dist.all_gather(several(), ones(3)),
        ("all_gather", "", "float32", 3)),
    "all_gather_into_tensor": (
        lambda: dist.all_gather_into_tensor(torch.cat(several()), ones(3)),
        ("all_gather_single", "", "float32", 3)),
    "reduce_scatter": (lambda: dist.reduce_scatter(ones(3), several()),
        ("reduce_scatter", "SUM", "float32", 9)),
    "reduce_scatter_tensor": (lambda: dist.reduce_scatter_tensor(ones(3), torch.cat(several())),
        ("reduce_scatter_single", "SUM", "float32", 9)),
    "gather": (lambda: dist.gather(ones(3), at_root(several())), ("gather", "", "float32", 3)),
    "scatter": (lambda: dist.scatter(ones(3), at_root(several())),
        ("scatter", "", "float32", 3)),
    "barrier": (dist.barrier, ("barrier", "", "", 0)),
    "all_to_all": (lambda: dist.all_to_all(several(), several()),
        ("all_to_all", "", "float32", 9)),
    "all_to_all_single": (
        lambda: dist.all_to_all_single(torch.cat(several()), torch.cat(several())),
        ("all_to_all_single", "", "float32", 9)),
    "functional all_reduce": (
        lambda: funcol.all_reduce(ones(3), "sum", dist.group.WORLD).clone(),
        ("all_reduce", "SUM", "float32", 3)),
    "functional all_gather": (
        lambda: funcol.all_gather_tensor(ones(3), 0, dist.group.WORLD).clone(),
        ("all_gather_single", "", "float32", 3)),
    "functional coalesced": (
        lambda: [t.clone() for t in funcol.all_reduce_coalesced([ones(3), ones(2)], "sum",
        dist.group.WORLD)], ("all_reduce", "SUM", "float32", 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.usefixtures("one_of_three")
def test_what_a_rank_contributes_is_recorded(name: str) -> None:
    assert_is_recorded(record, name)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_simulated_collective_is_recorded_alike(name: str) -> None:
    assert_is_recorded(simulate, name)


def assert_is_recorded(launches_of: Callable[..., Any], name: str) -> None:
    call, signature = COLLECTIVES[name]
    (launch,) = launches_of(call)
    assert launch.signature == signature
    assert (launch.ranks, launch.sequence) == ((0, 1, 2), 0)
    assert launch.source.path == shown_path(__file__)


def messages_and_roots() -> None:
    """Issue, on rank 1 of three, calls that name another rank by its global number."""
    pair = dist.new_group([1, 2])
    if dist.get_rank() == 0:
        dist.irecv(ones(1), 1)
        return
    dist.broadcast(ones(1), src=2, group=pair)
    dist.reduce(ones(1), dst=1, group=pair)
    dist.all_reduce(ones(1), group=pair)
    if dist.get_rank() == 1:
        dist.isend(ones(1), 0)
        dist.irecv(ones(1), 2, group=pair)
    else:
        dist.isend(ones(1), 1, group=pair)


def assert_names_others(found: list[CollectiveLaunch]) -> None:
    assert [(each.operation, each.root, each.ranks) for each in found] == [
        ("broadcast", 2, (1, 2)),
        ("reduce", 1, (1, 2)),
        ("all_reduce", None, (1, 2)),
        ("send", None, (1, 0)),
        ("recv", None, (2, 1)),
    ]
    *in_pair, in_world, last = (each.communicator for each in found)
    assert {f"{name}, messages" for name in in_pair} == {last} != {in_world}
    assert [each.sequence for each in found] == [0, 1, 2, 0, 0]


@pytest.mark.usefixtures("one_of_three")
def test_roots_and_messages_are_recorded_by_global_rank() -> None:
    assert_names_others(record(messages_and_roots))


def test_simulated_roots_and_messages_are_recorded_alike() -> None:
    assert_names_others(simulate(messages_and_roots))


@pytest.mark.usefixtures("alone")
def test_bytes_and_their_owners_are_recorded() -> None:
    recorder = Recorder()
    bucket = ones(8)
    gradients = {"w": bucket[:3], "b": bucket[3:4], "elsewhere": ones(2)}
    recorder.watch(lambda: gradients)
    with CollectiveRecording(recorder):
        dist.all_reduce(bucket[2:])
    (launch,) = launches(recorder)
    assert launch.regions == (MemoryRegion(0, 8, 32),)
    assert launch.parameters == ("w", "b")
    assert launch.slots == (ParameterSlot("w", -8, 12), ParameterSlot("b", 4, 4))


@pytest.mark.usefixtures("alone")
def test_collectives_of_a_backward_are_recorded() -> None:
    """As those of a hook, and of DDP's reducer in C++."""
    weight = ones(3).requires_grad_()
    weight.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad))
    (launch,) = record(lambda: (weight * 2).sum().backward())
    assert launch.signature == ("all_reduce", "SUM", "float32", 3)
    module = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    found = record(lambda: module(ones(2)).backward())
    assert [launch.signature for launch in found] == [
        ("all_reduce", "SUM", "float32", 3)
    ]


@pytest.mark.usefixtures("alone")
def test_dtensors_compute_as_without_the_recording() -> None:
    mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("dp",))
    weight = placed(ones(3), mesh)
    found = record(lambda: (weight.to_local() * 2).sum().backward())
    assert found == []
    assert isinstance(weight.grad, DTensor)
    assert weight.grad.to_local().tolist() == [2.0, 2.0, 2.0]
