"""Real processes over gloo. Run with arguments, this file forks the ranks of programs."""

import os
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard

from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig
from syncverify.synchronizer.hooks import bf16_error_feedback
from tests.programs import parameter

WORLD_SECONDS = 60
KIB_MB = 2**-10


def accumulate(parameter: nn.Parameter, scale: float) -> None:
    """Contribute scale * (0, 1, 2, ...): a gradient in which positions matter."""
    local = parameter.to_local()
    (local * torch.arange(local.numel()) * scale).sum().backward()


def holds(parameter: nn.Parameter, scale: float) -> bool:
    local = parameter.grad.to_local()
    return torch.equal(local, torch.arange(local.numel()) * scale)


def ranks_are_in_different_numbers_of_groups(rank: int) -> None:
    if rank < 2:
        dist.new_group([0, 1], use_local_synchronization=True)
    mesh = init_device_mesh("cpu", (1, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
    a = parameter(mesh, Replicate(), Replicate(), Replicate(), numel=2**15)
    with GradientSynchronizer([[a]], 1, 1) as sums:
        accumulate(a, 2**rank)
        sums.wait()
        assert holds(a, 0b1111)


def sums_are_scattered_and_measured(rank: int) -> None:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    group = [parameter(mesh, Replicate(), numel=256 + 32 * i) for i in range(4)]
    group.append(parameter(mesh, Shard(0), numel=64))
    config = SynchronizerConfig(mode="reduce_scatter", check_finite=True)
    with GradientSynchronizer([group], KIB_MB, 1, config=config) as sums:
        for _ in range(2):
            ordered = group if rank else group[::-1]
            for each in ordered:
                accumulate(each, 2**rank)
            sums.wait()
            owned = sums.owned_grads()
            for each in owned:
                factor = 2**rank if each.parameter is group[-1] else 3
                stop = each.start_numel + each.values.numel()
                expected = torch.arange(each.start_numel, stop) * factor
                assert torch.equal(each.values, expected.float())
            # Sums of the squares of 0, 1, ..., n - 1.
            squares = [(n - 1) * n * (2 * n - 1) // 6 for n in (256, 288, 320, 352, 64)]
            total = 9 * sum(squares[:4]) + (1 + 4) * squares[4]
            assert abs(sums.grad_norm().item() / total**0.5 - 1) < 400 * 2**-24
            assert len(sums.logging_data()["buckets"]) == 5
            sums.zero_grad()


def a_comm_hook_reduces(rank: int) -> None:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    group = [parameter(mesh, Replicate(), numel=60 + i) for i in range(4)]
    config = SynchronizerConfig(comm_hook=bf16_error_feedback)
    with GradientSynchronizer([group], KIB_MB, 1, config=config) as sums:
        for _ in range(2):
            for each in group:
                accumulate(each, 2**rank)  # sums of up to 3 * 63 < 2**8
            sums.wait()
            assert all(holds(each, 3) for each in group)
            sums.zero_grad()


def an_exception_waits_for_no_peer(rank: int) -> None:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    a = parameter(mesh, Replicate(), numel=300)
    sums = GradientSynchronizer([[a]], 1, 1)

    def fail() -> None:
        with sums:
            if rank == 0:
                accumulate(a, 1)  # rank 1 never takes part in this sum
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert a.grad is None
    assert "unbound" in repr(sums)


WORLDS = {
    2: (
        sums_are_scattered_and_measured,
        a_comm_hook_reduces,
        an_exception_waits_for_no_peer,  # the last one: its sum is never over
    ),
    4: (ranks_are_in_different_numbers_of_groups,),
}


@pytest.mark.long
@pytest.mark.parametrize("world_size", WORLDS)
def test_programs_give_exact_sums(world_size: int, tmp_path: Path) -> None:
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    ranks = subprocess.Popen(
        [sys.executable, __file__, str(world_size), tmp_path / "store"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = ranks.communicate(timeout=WORLD_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(ranks.pid, signal.SIGKILL)
        ranks.wait()
    assert ranks.returncode == 0, output


def run_ranks(world_size: int, store: str) -> list[int]:
    """Fork the ranks, which share the imports; return their exit codes."""
    for rank in range(world_size):
        if os.fork() == 0:
            os._exit(run_alone(rank, world_size, store))
    return [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(world_size)]


def run_alone(rank: int, world_size: int, store: str) -> int:
    """Run a rank to its end, and return an exit code.

    Gloo's threads may still be giving back tensors, and DTensor's caches keep them alive; a
    Python before 3.14 aborts when such a thread meets its shutdown. So the caller ends the
    process at once.
    """
    try:
        run_rank(rank, world_size, store)
    except BaseException:  # noqa: BLE001  # of the program, shown by the test
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
    return 0


def run_rank(rank: int, world_size: int, store: str) -> None:
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=WORLD_SECONDS // 4),
    )
    for program in WORLDS[world_size]:
        program(rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(max(map(abs, run_ranks(int(sys.argv[1]), sys.argv[2]))))
