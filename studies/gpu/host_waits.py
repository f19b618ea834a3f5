"""Waits of the host: a backward of our synchronizer must not have any."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from studies.gpu.one_rank import world_of_one
from studies.gpu.part import Part, Result
from studies.gpu.shared_device import drawn
from studies.gpu.training import step_of_ours
from syncverify.playing.sim import SimBackend
from syncverify.subjects.subject import resolve
from syncverify.trace.records import HostWait

SCENARIOS = 20


def run(device: torch.device) -> Result:
    """Run a step with torch's detector of host waits; on a CPU look for them on `sim`."""
    return _on_sim(SCENARIOS) if device.type != "cuda" else with_detector(device)


def with_detector(device: torch.device) -> Result:
    """Run a step of our synchronizer while torch raises where the host would wait."""
    wrong: list[str] = []
    with world_of_one(device):
        step, synchronizer, _ = step_of_ours(device)
        for is_first in (True, False):
            torch.cuda.synchronize()
            try:
                # The first step makes communicators, and waits until they are ready.
                with _refusing(waits=not is_first):
                    step()
            except RuntimeError as error:
                wrong.append(str(error).partition("\n")[0])
            synchronizer.zero_grad()
        synchronizer.unbind()
    return Result.of(wrong, device, "a backward and its wait, after one step before it")


@contextmanager
def _refusing(*, waits: bool) -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error" if waits else "default")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def _on_sim(num_scenarios: int) -> Result:
    subject, backend = resolve("synchronizer"), SimBackend()
    wrong = [
        f"scenario {number}, rank {rank}: {event.source}"
        for number, scenario in enumerate(drawn(subject, num_scenarios))
        if scenario.backward != "hook_reads_grad"  # a hook of the user waits
        for rank, own in enumerate(backend.run(scenario, subject).ranks)
        for event in own.trace
        if isinstance(event, HostWait) and event.moment.phase in {"backward", "wait"}
    ]
    summary = f"no host wait in {num_scenarios} scenarios of `sim`"
    return Result.of(wrong, torch.device("cpu"), summary)


PART = Part(
    "host-waits",
    "Waits of the host",
    'A step of our synchronizer under `torch.cuda.set_sync_debug_mode("error")`: does the host '
    "wait for the device? On a CPU: does it in the trace of `sim`?",
    run,
)
