"""Ranks on the streams of one device, with streams of a CPU or stand-ins in their place.

Streams of a CPU order nothing and delay nothing. So these tests show that scenarios are
played whole, and that the network is late. Only a GPU shows that delayed work and freed memory
make a difference.
"""

import pytest
import torch

from studies.bank_rows import reproducer_of
from studies.gpu import traces
from studies.gpu.real_streams.playing import play_on_streams, verdicts_on_streams
from studies.gpu.shared_device import drawn
from studies.stand_ins.idle_streams import IdleEvent, IdleStream
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.bugbank.catalogue import entry_of
from syncverify.subjects.subject import Subject, resolve

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
