"""torch's names are virtual on ranks' threads, during a run, and nowhere else."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from syncverify.sim.device_modules import _replacements, virtual_device_modules

OWNERS = (
    torch,
    torch.cuda,
    torch.cpu,
    torch.accelerator,
    torch.autograd,
    torch.Tensor,
    torch.UntypedStorage,
)


def everything() -> list[dict[str, Any]]:
    return [dict(vars(owner)) for owner in OWNERS]


def test_all_is_restored_after_a_run_and_after_an_error(traced) -> None:
    before = everything()
    traced(lambda _: torch.cuda.Stream())
    assert everything() == before
    with pytest.raises(ZeroDivisionError):
        traced(lambda _: 1 / 0)
    assert everything() == before
    with pytest.raises(ZeroDivisionError), virtual_device_modules():
        _ = 1 / (everything() == before)
    assert everything() == before


def test_owners_are_those_that_are_patched() -> None:
    """Or the test above would not look at all of them."""
    assert {id(owner) for owner, *_ in _replacements()} == {id(o) for o in OWNERS}


def elsewhere(function: Callable[[], Any]) -> Any:
    """Call a function on a thread that is no rank's."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def test_other_threads_see_what_torch_has(traced) -> None:
    unpatched = torch.cpu.Stream, type(torch.cpu.current_stream())

    def program(_: int) -> None:
        assert type(torch.cpu.Stream()) is not unpatched[0]
        assert elsewhere(lambda: type(torch.cpu.Stream())) is unpatched[0]
        assert elsewhere(lambda: type(torch.cpu.current_stream())) is unpatched[1]
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
