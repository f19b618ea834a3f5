"""An error of the machine itself is no violation, whatever the program makes of it."""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from syncverify import parity, simulate
from syncverify.errors import InternalError
from syncverify.faces.scripts.recording import record
from syncverify.faces.scripts.script import Script
from syncverify.faces.simulation.program import Device
from syncverify.faces.simulation.simulation import Simulation
from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.sim.device import device_functions
from syncverify.sim.device.streams import ReachedMarks
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.subject import Subject
from tests.programs import one_parameter


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each mark of a stream end in a line of the machine that has a mistake."""
    monkeypatch.delattr(ReachedMarks, "mark")


def waits() -> None:
    torch.cuda.Stream().wait_stream(torch.cuda.current_stream())


def hides() -> None:
    try:
        waits()
    except AttributeError:
        raise RuntimeError("the wait failed") from None


def goes_on() -> None:
    with contextlib.suppress(AttributeError):
        waits()
    if dist.get_rank() == 0:
        dist.barrier()


def in_a_comm_hook() -> None:
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2).cuda())
    model.register_comm_hook(None, lambda *_: waits())
    model(torch.ones(2, 2, device="cuda")).sum().backward()


PROGRAMS = (waits, hides, goes_on, in_a_comm_hook)


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_is_not_accused_of_an_error_of_the_machine(
    program: Callable[[], None],
) -> None:
    with pytest.raises(InternalError) as caught:
        simulate(program, 2)
    message = str(caught.value)
    assert "'ReachedMarks' object has no attribute 'mark'" in message
    assert "sim/device/streams.py:" in message
    assert "test_own_errors.py:" in message


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_on_a_thread_is_the_machines_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(device_functions, "_device_memory")

    def by_pool() -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(torch.cuda.memory_stats).result()

    def by_thread() -> None:
        thread = threading.Thread(target=torch.cuda.memory_stats)
        thread.start()
        thread.join()

    for program in (by_pool, by_thread):
        with pytest.raises(InternalError, match="_device_memory"):
            simulate(program, 1)


class Waiting(PlainGrads):
    def wait(self) -> None:
        waits()


@pytest.mark.usefixtures("broken")
def test_a_synchronizer_is_not_accused_of_an_error_of_the_machine() -> None:
    scenario = one_parameter(2, "p", (3,), cap_bytes=64)
    with pytest.raises(InternalError, match=r"streams\.py:"):
        SimBackend().run(
            scenario, Subject("waiting", Waiting, Capabilities(tensors="local"))
        )


def loss(model: nn.Module, batch: Tensor) -> Tensor:
    if dist.is_initialized():
        waits()
    return model(batch).square().mean()  # type: ignore[no-any-return]


@pytest.mark.usefixtures("broken")
def test_a_training_is_not_accused_of_an_error_of_the_machine() -> None:
    with pytest.raises(InternalError, match=r"streams\.py:"):
        parity(
            lambda: nn.Linear(2, 2),
            lambda model, _: None,
            lambda: torch.ones(4, 2),
            loss,
            layouts=["dp=2"],
        )


SCRIPT = """
import torch
import torch.distributed as dist
from syncverify.sim.device.streams import ReachedMarks

dist.init_process_group("nccl")
del ReachedMarks.mark
torch.cuda.Stream().wait_stream(torch.cuda.current_stream())
"""


@pytest.mark.long(5)
def test_a_script_is_not_accused_of_an_error_of_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    with pytest.raises(InternalError, match=r"rank \d: AttributeError: .*train\.py:"):
        record(Script(str(path)), 2)


def causes(simulation: Simulation) -> list[str]:
    return [each.violation.cause for each in simulation.violations]


@pytest.mark.parametrize(
    ("program", "cause"),
    [
        (lambda: torch.ones(2).sum(7), "raised_IndexError"),
        (lambda: torch.full((2,), "x", device="cuda"), "raised_TypeError"),
        (lambda: torch.cuda.current_stream(1, 2, 3), "raised_TypeError"),
        (
            lambda: torch.ones(2, device="cuda") + torch.ones(3, device="cuda"),
            "raised_RuntimeError",
        ),
    ],
)
def test_an_error_that_torch_raises_below_the_machine_is_the_programs(
    program: Callable[[], Any], cause: str
) -> None:
    assert causes(simulate(program, 2)) == [cause]


def streams_of_the_cpu() -> None:
    stream = torch.cpu.Stream()

    def work() -> None:
        stream.wait_stream(torch.cpu.current_stream())  # type: ignore[arg-type]

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def a_stream_of_the_rank() -> None:
    stream, current = torch.cuda.Stream(), torch.cuda.current_stream()
    thread = threading.Thread(target=lambda: stream.wait_stream(current))
    thread.start()
    thread.join()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("program", "device"), [(streams_of_the_cpu, "cpu"), (a_stream_of_the_rank, "cuda")]
)
def test_a_thread_that_orders_streams_is_refused(
    program: Callable[[], None], device: Device
) -> None:
    """When it does so depends on the operating system."""
    simulation = simulate(program, 2, device=device)
    assert causes(simulation) == []
    assert "threads that order streams beside their rank" in simulation.refused
