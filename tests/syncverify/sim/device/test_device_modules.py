"""torch's names are virtual on ranks' threads, during a run, and nowhere else."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.cuda import Event, Stream, stream

from syncverify.sim.device.device_modules import _replacements, virtual_device_modules

OWNERS = {id(owner): owner for owner, *_ in _replacements()}.values()


def everything() -> list[dict[str, Any]]:
    return [dict(vars(owner)) for owner in OWNERS]


def test_all_is_restored_after_a_run_and_after_an_error(traced) -> None:
    traced(lambda _: None)  # the first run of a process imports parts of torch
    before = everything()
    traced(lambda _: torch.cuda.Stream())
    assert everything() == before
    with pytest.raises(ZeroDivisionError):
        traced(lambda _: 1 / 0)
    assert everything() == before

    def fail() -> None:
        assert everything() != before
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), virtual_device_modules():
        fail()
    assert everything() == before


def elsewhere(function: Callable[[], Any]) -> Any:
    """Call a function on a thread that is no rank's."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def test_other_threads_see_what_torch_has(traced) -> None:
    stream_class, class_of_current = torch.cpu.Stream, type(torch.cpu.current_stream())

    def program(_: int) -> None:
        assert type(torch.cpu.Stream()) is not stream_class
        assert elsewhere(lambda: type(torch.cpu.Stream())) is stream_class
        assert elsewhere(lambda: type(torch.cpu.current_stream())) is class_of_current
        x = torch.zeros(3)
        assert x.cpu() is not x
        assert elsewhere(lambda: x.cpu() is x)

    traced(program)


def test_instances_are_of_the_class_that_torch_shows(traced) -> None:
    def program(_: int) -> None:
        hint = torch.cuda.Stream | None
        assert isinstance(torch.cuda.Stream(), hint)
        assert isinstance(torch.Stream(), torch.cuda.Stream)
        assert not isinstance(torch.cuda.Event(), torch.cuda.Stream)
        assert torch.cuda.current_device() == 0

    traced(program)


def waits_for_all(rank: int) -> None:
    comm = torch.cuda.Stream(
        torch.cuda.current_device(), torch.cuda.Stream.priority_range()[1]
    )
    comm.wait_stream(torch.cuda.current_stream(device=torch.device("cuda")))
    done = torch.cuda.Event(enable_timing=False, blocking=True)
    with torch.cuda.device(0), torch.cuda.stream(comm):
        done.record(torch.cuda.current_stream(0))
    torch.cuda.default_stream(device=0).wait_event(done)
    torch.cuda.set_device(rank)
    torch.cuda._sleep(1000)


def waits_for_all_by_imported_names(_: int) -> None:
    comm = Stream(priority=-1)
    comm.wait_stream(torch.cuda.current_stream())
    done = Event()
    with stream(comm):
        torch.cuda.nvtx.range_push("reduce")
        done.record()
        torch.cuda.nvtx.range_pop()
    done.wait(torch.cuda.default_stream())


def waits_for_all_on_any_accelerator(_: int) -> None:
    comm = torch.Stream("cuda:0", priority=-1)
    comm.wait_stream(torch.accelerator.current_stream(0))
    done = torch.Event("cuda", blocking=True)
    with torch.accelerator.device_index(comm.device_index), comm:
        done.record()
    torch.accelerator.current_stream().wait_event(done)


def waits_for_all_of_a_device_module(_: int) -> None:
    device = torch.get_device_module("cuda")
    comm = device.Stream()
    comm.wait_event(device.current_stream().record_event())
    done = comm.record_event()
    assert not device.is_current_stream_capturing()
    device.current_stream().wait_event(done)


@pytest.mark.parametrize(
    "program",
    [
        waits_for_all,
        waits_for_all_by_imported_names,
        waits_for_all_on_any_accelerator,
        waits_for_all_of_a_device_module,
    ],
)
def test_all_styles_of_asking_for_streams_lead_to_the_same(lines_of, program) -> None:
    assert lines_of(program) == [
        "mark 1 in default",
        "stream 1 waits for 1",
        "mark 2 in stream 1",
        "default waits for 2",
    ]
