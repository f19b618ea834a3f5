"""Lines of torch see the CUDA devices that a program sees, and make tensors on the host."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.tensor as tensors
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from syncverify.judge.ordering.races import judge_orderings
from syncverify.sim.device.torch_internals import GROUP_TENSORS
from syncverify.trace.records import HostWait
from tests.free_programs import FREE_PROGRAMS, Program, on_its_device, play


def host_waits(program: Program) -> int:
    """Count the waits of rank 0's host in a program that uses a second stream."""

    def with_streams(rank: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.ones(2, device="cuda").add_(1)
        program(rank)

    trace = play(with_streams, 2, device="cuda").recorders[0].trace
    return sum(isinstance(each, HostWait) for each in trace)


def steps(num_steps: int, **options: Any) -> Program:
    """Return a program that takes steps of AdamW."""

    def program(_: int) -> None:
        with torch.device("cuda"):
            model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
            inputs = torch.ones(2, 4)
        optimizer = torch.optim.AdamW(model.parameters(), **options)
        for _ in range(num_steps):
            model(inputs).sum().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    return program


@pytest.mark.parametrize("options", [{"foreach": False}, {"foreach": True}, {}])
def test_counters_of_steps_lie_in_memory_of_the_host(options: dict[str, Any]) -> None:
    """No GPU makes the host wait for them, and so no race is hidden behind such a wait."""
    assert host_waits(steps(2, **options)) == host_waits(steps(0)) == 0


def test_a_capturable_optimizer_keeps_its_counters_on_the_device() -> None:
    places: list[str] = []

    def program(_: int) -> None:
        parameter = nn.Parameter(torch.ones(2, device="cuda"))
        for capturable in (False, True):
            optimizer = torch.optim.AdamW([parameter], capturable=capturable)
            parameter.grad = torch.ones_like(parameter)
            optimizer.step()
            places.append(optimizer.state[parameter]["step"].device.type)

    play(program, 1, device="cuda")
    assert places == ["cpu", "cuda"]


def test_a_counter_that_is_read_from_the_device_makes_the_host_wait() -> None:
    def program(_: int) -> None:
        torch.ones(2, device="cuda").sum().item()

    assert host_waits(program) == 1


def test_an_integer_that_is_copied_to_the_host_is_waited_for() -> None:
    def program(_: int) -> None:
        copied = torch.ones(2, dtype=torch.int64, device="cuda").cpu()
        copied.add_(1)

    machine = play(program, 1, device="cuda")
    assert host_waits(program) == 1
    assert judge_orderings([machine.recorders[0].trace]).races == ()


def data_parallel(rank: int) -> None:
    model = DistributedDataParallel(nn.Linear(4, 4).cuda(), device_ids=[rank])
    model(torch.ones(2, 4)).sum().backward()  # moved by torch
    assert model.device == torch.device("cuda", rank)


def mesh(rank: int) -> None:
    weight = nn.Linear(2, 2).weight.data.cuda()
    whole = init_device_mesh("cuda", (dist.get_world_size(),))
    sharded = distribute_tensor(weight, whole, [Shard(0)])
    assert sharded.device == torch.device("cuda", rank)
    assert (sharded + sharded).full_tensor().is_cuda


def random_numbers_of_a_mesh(_: int) -> None:
    whole = init_device_mesh("cuda", (dist.get_world_size(),))
    torch.manual_seed(0)
    numbers = tensors.rand(64, device_mesh=whole, placements=[Shard(0)])
    assert len({*numbers.full_tensor().tolist()}) == 64
    kept = nn.functional.dropout(
        DTensor.from_local(torch.ones(64).cuda(), whole, [Shard(0)])
    )
    halves = kept.full_tensor().view(dist.get_world_size(), -1)  # type: ignore[attr-defined]
    assert not torch.equal(halves[0], halves[1])


def recomputed(_: int) -> None:
    layers = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).cuda()
    given = torch.ones(2, 4, device="cuda", requires_grad=True)
    for reentrant in (True, False):
        checkpoint(layers, given, use_reentrant=reentrant).sum().backward()


def scaled(_: int) -> None:
    scaler = torch.amp.GradScaler("cuda")
    parameter = nn.Parameter(torch.ones(2, device="cuda"))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    scaler.scale(parameter.sum()).backward()
    scaler.step(optimizer)
    assert parameter.tolist() == [0.5, 0.5]


@pytest.mark.slow
@pytest.mark.parametrize(
    "program", [data_parallel, mesh, random_numbers_of_a_mesh, recomputed, scaled]
)
def test_torch_runs_its_code_for_gpus(program: Program) -> None:
    machine = play(program, 2, device="cuda")
    found = judge_orderings([each.trace for each in machine.recorders])
    assert found.races == found.early_frees == ()


@pytest.mark.long
@pytest.mark.parametrize("program", FREE_PROGRAMS.values(), ids=FREE_PROGRAMS)
def test_a_right_free_program_on_cuda_ends_without_an_alarm(program: Program) -> None:
    machine = play(on_its_device(program), 4, device="cuda")
    found = judge_orderings([each.trace for each in machine.recorders])
    assert found.races == found.early_frees == ()


def test_a_generator_of_cuda_goes_back_to_its_state() -> None:
    def program(_: int) -> None:
        torch.cuda.manual_seed(3)
        state = torch.cuda.get_rng_state()
        assert (state.numel(), state.is_cpu) == (16, True)
        first = torch.rand(3, device="cuda").tolist()
        assert not torch.equal(torch.cuda.get_rng_state(), state)
        torch.cuda.set_rng_state(state)
        assert torch.rand(3, device="cuda").tolist() == first
        assert torch.cuda.initial_seed() == 3

    play(program, 1, device="cuda")


def test_a_function_mode_does_not_copy_to_the_host() -> None:
    def program(_: int) -> None:
        with torch.device("cuda"):
            moved = torch.LongTensor([3]).to("cuda:0")
            assert moved.is_cuda

    play(program, 1, device="cuda")


def test_cpp_code_groups_tensors_by_their_true_device() -> None:
    group = getattr(*GROUP_TENSORS)
    ((device, dtype),) = group([[torch.ones(1)]], False)
    assert (device, dtype) == (torch.device("cpu"), torch.float32)
