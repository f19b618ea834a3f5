"""Ranks on the streams of one device, with streams of a CPU or stand-ins in their place.

Streams of a CPU order nothing and delay nothing. So these tests show that scenarios are
played whole, that the network is late, and in which order work is put on streams. Only a GPU
shows that delayed work and freed memory make a difference.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import torch

from studies.bank_rows import reproducer_of
from studies.gpu import traces
from studies.gpu.real_streams.lanes import Kind, Lanes
from studies.gpu.real_streams.playing import play_on_streams, verdicts_on_streams
from studies.gpu.real_streams.recorder import StreamRecorder
from studies.gpu.shared_device import drawn
from studies.stand_ins.idle_streams import IdleEvent, IdleStream
from syncverify.bugbank.catalogue import entry_of
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.subject import Subject, resolve
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.source_lines import NoLine

CPU = torch.device("cpu")
LATE = ["handles-never-kept", "work-handle-empty", "future-done-at-enqueue"]


@pytest.fixture
def idle_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("current_stream", "default_stream"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: IdleStream())
    monkeypatch.setattr(torch.cuda, "Stream", IdleStream)
    monkeypatch.setattr(torch.cuda, "Event", IdleEvent)
    monkeypatch.setattr(torch.cuda, "stream", torch.cpu.stream)


def violations_of(subject: Subject, scenario: Scenario) -> set[str]:
    verdicts = verdicts_on_streams(scenario, subject, CPU)
    return {each for _, found in verdicts for each in found}


@pytest.mark.long
@pytest.mark.parametrize("name", ["synchronizer", "ddp"])
def test_right_subjects_are_right_there(name: str) -> None:
    subject = resolve(name)
    verdicts = [
        found
        for scenario in drawn(subject, 4)
        for _, found in verdicts_on_streams(scenario, subject, CPU)
    ]
    # Four scenarios, each without delays and with four kinds of them.
    assert verdicts == [[]] * 20


@pytest.mark.usefixtures("idle_streams")
@pytest.mark.parametrize("entry_id", LATE)
def test_a_result_that_nobody_waits_for_is_not_there(entry_id: str) -> None:
    entry = entry_of(entry_id)
    played = reproducer_of(entry)
    assert played is not None
    found = violations_of(entry.defect(), played.scenario)
    # By its values alone, a sum that comes too late looks like one that is dropped.
    late = ("rank_contribution_missing", "result_dropped")
    assert any(cause in each for cause in late for each in found), found
    assert violations_of(entry.fixed(), played.scenario) == set()


@pytest.mark.long
def test_operators_are_those_of_sim_in_the_same_order() -> None:
    subject = resolve("synchronizer")
    scenario = traces._scenarios(subject, 8)[4]
    played = play_on_streams(scenario, subject, CPU)
    expected = traces.simulated(scenario, subject)
    assert sum(map(len, expected)) > 100
    for own, other in zip(expected, played.operators, strict=True):
        assert [name for name, _ in own] == [name for name, _ in other]


@dataclass(eq=False)
class NamedStream:
    """A stream that notes the work on it."""

    name: str
    done: list[str]

    def wait_stream(self, other: "NamedStream") -> None:
        self.done.append(f"{self.name} waits for {other.name}")

    def wait_event(self, event: str) -> None:
        self.done.append(f"{self.name} waits for {event}")

    def record_event(self) -> str:
        event = f"event {len(self.done)} of {self.name}"
        self.done.append(event)
        return event


@dataclass
class NamedStreams:
    """Stands for `torch.cuda`: its streams have names, and note their work."""

    done: list[str] = field(default_factory=list)
    made: list[NamedStream] = field(default_factory=list)
    current: list[NamedStream] = field(default_factory=list)

    def Stream(self) -> NamedStream:  # noqa: N802
        self.made.append(NamedStream(f"stream {len(self.made)}", self.done))
        return self.made[-1]

    def current_stream(self) -> NamedStream:
        return self.current[-1]

    @contextmanager
    def stream(self, stream: NamedStream) -> Iterator[None]:
        self.current.append(stream)
        yield
        self.current.pop()

    def sleep(self, _: int) -> None:
        self.done.append(f"{self.current[-1].name} sleeps")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> NamedStreams:
    streams = NamedStreams()
    monkeypatch.setattr(torch, "get_device_module", lambda _: streams)
    monkeypatch.setattr(torch.cuda, "_sleep", streams.sleep, raising=False)
    return streams


def recorder_on(slow: Kind | None) -> tuple[StreamRecorder, Lanes]:
    lanes = Lanes(torch.device("cuda", 0), slow)
    return StreamRecorder(lanes, {}), lanes


def launched_by(recorder: StreamRecorder, *, is_async: bool) -> CollectiveLaunch:
    lane = recorder.communication_stream("0", (0, 1), is_async=is_async)
    return recorder.launch(
        "all_reduce", [torch.ones(2)], ranks=(0, 1), reduce_op="SUM", source=NoLine.UNKNOWN,
        communicator="0", communication_stream=lane,
    )  # fmt: skip


def exchange(recorder: StreamRecorder, done: list[str], *, is_async: bool) -> None:
    launched = launched_by(recorder, is_async=is_async)
    recorder.start(launched, lambda: done.append("copy of inputs"))
    recorder._taken[launched.key].append("event of the peer")
    with recorder.delivering(launched):
        done.append("write of results")
    recorder.wait(launched)


def test_a_collective_is_ordered_by_streams_alone(device: NamedStreams) -> None:
    recorder, lanes = recorder_on("communication")
    with lanes.as_current():
        exchange(recorder, device.done, is_async=True)
    assert device.done == [
        "stream 1 waits for stream 0",
        "stream 1 sleeps",
        "copy of inputs",
        "event 3 of stream 1",
        "stream 1 waits for event 3 of stream 1",
        "stream 1 waits for event of the peer",
        "stream 1 sleeps",
        "write of results",
        "event 8 of stream 1",
        "stream 0 waits for event 8 of stream 1",
    ]


@pytest.mark.parametrize(
    ("slow", "sleeping"), [("main", 0), ("first side", 1), ("other side", 2)]
)
def test_one_kind_of_streams_is_slow(
    device: NamedStreams, slow: Kind, sleeping: int
) -> None:
    _, lanes = recorder_on(slow)
    with lanes.as_current():
        lanes.delay()
        for side in (device.Stream(), device.Stream()):
            with device.stream(side):
                lanes.delay()
    assert device.done == [f"stream {sleeping} sleeps"]
