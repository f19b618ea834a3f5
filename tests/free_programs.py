"""Free programs, which no scenario describes: functions of a rank that use torch alone."""

import functools
import multiprocessing
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, schedules
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from syncverify import simulate
from syncverify.errors import RunEndedError
from syncverify.sim.machine import SimulatedMachine
from syncverify.sim.turns.stalls import Stall

Program = Callable[[int], None]

_Result = TypeVar("_Result")


def in_new_process(function: Callable[[], _Result]) -> _Result:
    """Call a function in a new process, for programs that fork.

    A child of the process of the tests destroys what their threads leave behind, and a group of
    gloo hangs or crashes there: its threads are not in the child.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as processes:
        return processes.submit(function).result()


def _forks(rank: int) -> int:
    child = os.fork()
    if child == 0:
        os._exit(5)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def code_of_a_forked_child() -> tuple[int, ...]:
    """Return the exit code of the child of a rank."""
    return simulate(_forks, 1).results


def play(program: Program, num_ranks: int, *, device: str = "cpu") -> SimulatedMachine:
    """Play a program to its end on simulated ranks, and return the machine.

    The program sees the device: `cpu`, or `cuda` with NCCL.
    """
    machine, stall, errors = tried(program, num_ranks, device=device)
    for error in errors:
        if error is not None and not isinstance(error, RunEndedError):
            raise error
    assert stall is None, stall
    assert machine.world.mismatch is None, machine.world.mismatch
    return machine


def tried(
    program: Program, num_ranks: int, *, device: str = "cpu"
) -> tuple[SimulatedMachine, Stall | None, list[BaseException | None]]:
    """Play a program, and return the machine, the stall, and what each rank raised."""
    machine = SimulatedMachine(num_ranks)
    for rank, recorder in enumerate(machine.recorders if device == "cuda" else ()):
        recorder.streams.backends.default = "nccl"
        recorder.streams.tell(torch.device("cuda", rank))

    def recorded(rank: int) -> None:
        with machine.recorders[rank].recording_accesses():
            program(rank)

    threads, stall = machine.run(recorded)
    return machine, stall, [thread.error for thread in threads]


def _device() -> str:
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def on_its_device(program: Program) -> Program:
    """Return a program that makes tensors on its device, by default."""

    def placed(rank: int) -> None:
        with torch.device(_device()):
            program(rank)

    return placed


class Block(nn.Module):
    """Norm, two linear layers and a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Add the block's output to its input."""
        added: torch.Tensor = inputs + self.down(torch.relu(self.up(self.norm(inputs))))
        return added


def blocks(width: int = 8, count: int = 2) -> nn.Sequential:
    """Make the same blocks on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(*(Block(width) for _ in range(count)))


def train(model: nn.Module, inputs: torch.Tensor, *, steps: int = 2) -> None:
    """Take steps of AdamW with clipped gradients."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(steps):
        model(inputs).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def _inputs(rank: int) -> torch.Tensor:
    return torch.randn(4, 4, 8, generator=torch.Generator("cpu").manual_seed(rank))


def _sharded(model: nn.Sequential, mesh: Any) -> nn.Sequential:
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def fsdp2(rank: int) -> None:
    """Shard over all ranks."""
    mesh = init_device_mesh(_device(), (dist.get_world_size(),))
    train(_sharded(blocks(), mesh), _inputs(rank))


def hsdp(rank: int) -> None:
    """Replicate over two groups of ranks, and shard within each."""
    names = ("replicate", "shard")
    mesh = init_device_mesh(_device(), (2, 2), mesh_dim_names=names)
    train(_sharded(blocks(), mesh), _inputs(rank))


def fsdp2_with_tensor_and_sequence_parallel(_: int) -> None:
    """Shard over two ranks, each a pair with tensor and sequence parallelism."""
    mesh = init_device_mesh(_device(), (2, 2), mesh_dim_names=("dp", "tp"))
    model = blocks()
    plan = {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    }
    for block in model:
        parallelize_module(block, mesh["tp"], plan)
    entry = PrepareModuleInput(
        input_layouts=Replicate(),
        desired_input_layouts=Shard(1),
        use_local_output=False,
    )
    parallelize_module(model[0], mesh["tp"], entry)
    train(_sharded(model, mesh["dp"]), _inputs(mesh["dp"].get_local_rank()))


_ONE_STAGE, _V_SHAPED = ("1F1B",), ("ZBVZeroBubble", "DualPipeV")
SCHEDULES = (*_ONE_STAGE, "Interleaved1F1B", "InterleavedZeroBubble", *_V_SHAPED)


def pipeline(name: str) -> Program:
    """Return a program of eight micro-batches under a schedule, by its name in torch."""
    return functools.partial(_pipeline, name)


def _pipeline(name: str, rank: int) -> None:
    schedule: Any = schedules.get_schedule_class(name)
    num_ranks = dist.get_world_size()
    num_stages = num_ranks if name in _ONE_STAGE else 2 * num_ranks
    mine = _stages_of(name, rank, num_ranks)
    stages = [
        PipelineStage(blocks(count=1), index, num_stages, torch.device(_device()))
        for index in mine
    ]
    given = stages[0] if name in _ONE_STAGE else stages
    run = schedule(given, n_microbatches=8, loss_fn=nn.MSELoss())
    inputs = (torch.ones(8, 4, 8),) if 0 in mine else ()
    targets = {"target": torch.zeros(8, 4, 8)} if num_stages - 1 in mine else {}
    run.step(*inputs, **targets)


def _stages_of(name: str, rank: int, num_ranks: int) -> tuple[int, ...]:
    if name in _ONE_STAGE:
        return (rank,)
    second = 2 * num_ranks - 1 - rank if name in _V_SHAPED else rank + num_ranks
    return rank, second


def distributed_checkpoint(rank: int) -> None:
    """Save a sharded model with its optimizer, and load it into another one."""
    mesh = init_device_mesh(_device(), (dist.get_world_size(),))
    folder: list[str | None] = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    saved, loaded = (_trained(mesh, rank) for _ in range(2))
    for parameter in loaded[0].parameters():
        parameter.data.zero_()
    state = get_state_dict(*saved)
    path = Path(str(folder[0]))
    checkpoint.save({"model": state[0], "optimizer": state[1]}, checkpoint_id=path)
    into = get_state_dict(*loaded)
    read = {"model": into[0], "optimizer": into[1]}
    checkpoint.load(read, checkpoint_id=path)
    set_state_dict(
        *loaded, model_state_dict=read["model"], optim_state_dict=read["optimizer"]
    )
    for one, other in zip(saved[0].parameters(), loaded[0].parameters(), strict=True):
        assert isinstance(one, DTensor)
        assert isinstance(other, DTensor)
        assert torch.equal(one.to_local(), other.to_local())


def _trained(mesh: Any, rank: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = _sharded(blocks(), mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(_inputs(rank)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


# Programs on four ranks, each with a name.
FREE_PROGRAMS: dict[str, Program] = {
    "FSDP2": fsdp2,
    "HSDP": hsdp,
    "FSDP2 with tensor and sequence parallelism": fsdp2_with_tensor_and_sequence_parallel,
    "distributed checkpoint": distributed_checkpoint,
    **{name: pipeline(name) for name in SCHEDULES},
}
