"""A run of right programs ends without an alarm, and leaves nothing of itself in the process."""

import gc
import sys
import weakref

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from syncverify.judge.ordering.races import judge_orderings
from syncverify.playing.sim import SimBackend
from syncverify.sim.machine import BACKEND_NAME, SimulatedMachine
from syncverify.sim.network.threaded_world import thread_local_world
from syncverify.subjects.subject import resolve
from tests.free_programs import FREE_PROGRAMS, on_its_device, play
from tests.programs import one_parameter


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "device"), [*((name, "cuda") for name in FREE_PROGRAMS), ("FSDP2", "cpu")]
)
def test_a_right_free_program_ends_without_an_alarm(name: str, device: str) -> None:
    program = FREE_PROGRAMS[name]
    played = on_its_device(program) if device == "cuda" else program
    machine = play(played, 4, device=device)
    found = judge_orderings([recorder.trace for recorder in machine.recorders])
    assert found.races == found.early_frees == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["synchronizer", "ddp"])
def test_no_machine_outlives_its_run(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process plays tens of thousands of runs."""
    machines: list[weakref.ref[SimulatedMachine]] = []

    class Watched(SimulatedMachine):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[arg-type]  # handed on
            machines.append(weakref.ref(self))

    monkeypatch.setattr("syncverify.playing.play.SimulatedMachine", Watched)
    for _ in range(2):
        assert SimBackend().run(one_parameter(2), resolve(name)).fault is None
    gc.collect()
    assert len(machines) >= 2  # a run may make more than one
    assert [machine for machine in machines if machine() is not None] == []


def test_a_run_leaves_no_backend_and_no_hook_for_exceptions() -> None:
    """Thousands of runs made a chain of hooks that no exception could pass."""
    before = sys.excepthook
    name = BACKEND_NAME.upper()
    seen: list[bool] = []
    SimulatedMachine(1).run(lambda _: seen.append(name in dist.Backend._plugins))
    assert seen == [True]
    assert name not in dist.Backend._plugins
    assert sys.excepthook is before


def test_world_is_restored_after_an_error() -> None:
    before = c10d._world
    with pytest.raises(KeyError), thread_local_world():
        raise KeyError
    assert c10d._world is before


def test_default_process_group_is_not_hidden() -> None:
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        with pytest.raises(RuntimeError) as caught, thread_local_world():
            pass
    finally:
        dist.destroy_process_group()
    assert str(caught.value) == (
        "expected no default process group in a process that simulates ranks; "
        "call torch.distributed.destroy_process_group() first"
    )


# Code that becomes TorchScript.


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    return tensor + torch.ones_like(tensor) * _half(2.0)


def _half(number: float) -> float:
    return number / 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")  # since torch 2.14
def test_a_function_becomes_torchscript_within_a_run() -> None:
    """Modules of torch compile such functions as they are imported."""

    def program(_: int) -> None:
        ones = torch.ones_like
        assert torch.jit.script(doubled)(torch.ones(2)).tolist() == [2, 2]
        assert torch.ones_like is ones

    play(program, 1, device="cuda")
