"""Names of torch's classes and modules: each is answered, fits every object, or is refused.

The comparisons are with the torch that runs the tests, so they fail where a release adds a name.
"""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from syncverify import simulate
from syncverify.sim.device import device_modules
from syncverify.sim.device.futures import LazyFuture
from syncverify.sim.device.virtual_streams import VirtualEvent, VirtualStream
from syncverify.sim.network.process_group import _INHERITED as OF_GROUPS
from syncverify.sim.network.process_group import SimulatedProcessGroup
from syncverify.sim.network.work import _INHERITED as OF_WORKS
from syncverify.sim.network.work import CoalescedWork, DroppableHandle, SimulatedWork
from syncverify.sim.turns.refusals import unanswered

# Names of torch's streams and events that the machine refuses by `__getattr__`.
REFUSED = {"__cuda_stream__", "_as_parameter_", "event_id"}
OF_FUTURES = {
    *("__class_getitem__", "__orig_bases__", "__parameters__", "__slots__"),
    *("__setstate__", "_is_protocol", "_pybind11_conduit_v1_", "_set_unwrap_func"),
    *("set_exception", "set_result"),
}


@pytest.mark.parametrize(
    ("own", "of_torch"),
    [
        (VirtualStream, (torch.cuda.Stream, torch.Stream)),
        (VirtualEvent, (torch.cuda.Event, torch.Event)),
    ],
)
def test_streams_and_events_answer_the_names_of_torchs_or_refuse_them(
    own: type, of_torch: tuple[type, ...]
) -> None:
    named = {name for each in of_torch for name in dir(each)}
    in_python = {"__dict__", "__module__", "__weakref__"}
    instance = vars(own) | dict.fromkeys(("device", "priority"))
    missing = named - set(dir(object)) - in_python - instance.keys()
    assert missing <= REFUSED


@pytest.mark.parametrize(
    ("own", "of_torch", "inherited"),
    [
        (SimulatedProcessGroup, dist.ProcessGroup, OF_GROUPS),
        *((work, dist.Work, OF_WORKS) for work in (SimulatedWork, DroppableHandle)),
        (CoalescedWork, dist.Work, OF_WORKS),
        (LazyFuture, torch.futures.Future, OF_FUTURES),
    ],
)
def test_no_method_of_torchs_base_class_runs_in_the_place_of_ours(
    own: type, of_torch: type, inherited: set[str]
) -> None:
    assert unanswered(own, of_torch, inherited) == []


@pytest.mark.parametrize("module", [torch.cuda, torch.accelerator])
def test_each_function_of_a_device_module_is_answered_or_refused(module: Any) -> None:
    known = {*device_modules._AS_TORCH, *device_modules.ANSWERED[module]}
    replaced = {n for o, n, _ in device_modules._replacements() if o is module}
    functions = {n for n in module.__all__ if inspect.isroutine(getattr(module, n))}
    assert functions <= replaced | known


def played(program: Callable[[], Any]) -> tuple[list[str], str]:
    """Return the causes of the violations, and the reason of a refusal."""
    simulation = simulate(program, 2)
    causes = [each.violation.cause for each in simulation.violations]
    return causes, simulation.refused


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (lambda: torch.cuda.Stream().__cuda_stream__(), "Stream.__cuda_stream__"),
        (lambda: torch.cuda.seed(), "torch.cuda.seed"),
        (lambda: torch.cuda.get_device_properties(0).uuid, "get_device_properties()."),
        (lambda: dist.all_reduce(torch.ones(2, device="cuda"), async_op=True).source_rank(),
            "Work.source_rank"),
        (lambda: dist.group.WORLD.allreduce(torch.ones(2, device="cuda"), op=dist.ReduceOp.SUM),
            "ProcessGroup.allreduce with op"),
    ],
)  # fmt: skip
def test_a_name_of_torch_without_an_answer_is_refused_by_name(
    program: Callable[[], Any], name: str
) -> None:
    causes, refused = played(program)
    assert causes == []
    assert name in refused
    assert "test_unanswered.py:" in refused


@pytest.mark.parametrize(
    ("program", "cause"),
    [
        (lambda: torch.cuda.Stream().wait_steam(1), "raised_AttributeError"),
        (lambda: torch.cuda.Stream().wait_stream(None), "raised_TypeError"),
        (lambda: torch.cuda.set_rng_state(None), "raised_TypeError"),
        (lambda: dist.broadcast(torch.ones(2, device="cuda"), 9), "raised_ValueError"),
    ],
)
def test_what_torch_refuses_as_well_is_an_error_of_the_program(
    program: Callable[[], Any], cause: str
) -> None:
    assert played(program) == ([cause], "")


def test_a_stream_tells_the_type_of_its_device() -> None:
    def program() -> None:
        stream = torch.cuda.current_stream()
        assert stream.device_type == torch.autograd.DeviceType.CUDA.value
        dist.group.WORLD.broadcast([torch.ones(2, device="cuda")])

    assert played(program) == ([], "")
