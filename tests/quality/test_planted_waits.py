"""Each wait of FSDP2 and AdamW is removed from a trace; no wait of a host may hide a race.

AdamW counts its steps in memory of the host, and reads the counters in each step. If a harness
takes the counters for memory of the device, the host seems to wait for the device in each step.
Such a wait orders all later work, and so it hides a missing wait between streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

from syncverify.faces.simulation.program import SimulatedProgram
from syncverify.judge.ordering.held_memory import HeldMemory, held_memory
from syncverify.judge.ordering.races import judge_orderings
from syncverify.judge.properties import check
from syncverify.playing.play import play
from syncverify.playing.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.sim.device.seen_device import SeenDevice
from syncverify.subjects.subject import resolve
from syncverify.trace.records import (
    CollectiveWait,
    HostWait,
    StorageFreed,
    StreamWait,
    TraceRecord,
)
from syncverify.trace.run import Traces
from tests.quality.planted.host_copies import HoldsUntilJoined, RecordsEachCopy


def two_steps(*, foreach: bool) -> Callable[[], None]:
    def program() -> None:
        torch.manual_seed(0)
        layers = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)]
        model = nn.Sequential(*layers).cuda()
        for layer in layers:
            fully_shard(layer)
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=foreach)
        for _ in range(2):
            model(torch.ones(4, 8, device="cuda")).sum().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    return program


def traces_of(program: Callable[[], None]) -> Traces:
    played = play(SimulatedProgram(program, 2, "cuda"))
    assert played.run.fault is None
    return [each.trace for each in played.run.ranks]


def num_disorders(own: Sequence[TraceRecord], others: Traces) -> int:
    found = judge_orderings([own, *others])
    return len(found.races) + len(found.early_frees)


def removals(traces: Traces) -> Iterator[tuple[int, int]]:
    """Yield two numbers for each wait of rank 0: disorders without it, and those that hosts hide."""
    own, *others = traces
    for index, record in enumerate(own):
        if isinstance(record, StreamWait | CollectiveWait):
            rest = [*own[:index], *own[index + 1 :]]
            on_devices = [each for each in rest if not isinstance(each, HostWait)]
            shown = num_disorders(rest, others)
            yield shown, num_disorders(on_devices, others) - shown


@pytest.mark.long
@pytest.mark.parametrize("foreach", [False, True])
def test_no_wait_of_a_host_hides_a_missing_wait(*, foreach: bool) -> None:
    traces = traces_of(two_steps(foreach=foreach))
    assert num_disorders(traces[0], traces[1:]) == 0
    found = [*removals(traces)]
    # 86 waits are removed, one at a time; 46 of them are needed.
    assert sum(shown > 0 for shown, _ in found) > 40
    assert all(hidden == 0 for _, hidden in found)


@pytest.mark.long
def test_counters_on_the_device_would_hide_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SeenDevice, "keep_on_host", lambda *_: None)
    found = removals(traces_of(two_steps(foreach=False)))
    assert any(hidden > 0 for _, hidden in found)


# Memory that `record_stream` holds back is measured, and is no violation.


MANY_BUCKETS = Scenario(
    MeshSpec((2,), ("dp",)),
    tuple(ParameterSpec(f"p{index}", (64,), ("R",)) for index in range(50)),
    (1,),
    256,
)


@pytest.mark.long
@pytest.mark.parametrize("launch", ["current_stream", "parameter_streams"])
@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (RecordsEachCopy, HeldMemory(50, 12_800, 256, rank=0, step=0)),
        (HoldsUntilJoined, HeldMemory()),
    ],
)
def test_copies_pile_up_where_they_are_recorded(
    subject: type, expected: HeldMemory, launch: str
) -> None:
    """Memory that autograd records for the caller's own streams does not count."""
    found, scenario = resolve(subject), replace(MANY_BUCKETS, launch=launch)
    run = SimBackend().run(scenario, found)
    events = [rank_run.trace for rank_run in run.ranks]
    assert held_memory(events) == expected
    assert autograd_records(events) == (launch != "current_stream")
    assert check(scenario, run, found.capabilities) == []


def autograd_records(traces: list[list[TraceRecord]]) -> bool:
    return any(
        event.engine_streams
        for events in traces
        for event in events
        if isinstance(event, StorageFreed)
    )
