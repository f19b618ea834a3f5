"""Whole scenarios: subjects with side streams, and edges that are missing."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from syncverify.backends.sim import SimBackend
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import Subject, resolve
from syncverify.trace.records import Access, Mark, StreamWait
from syncverify.trace.run import Run

SCENARIO = Scenario(
    MeshSpec((2,), ("dp",)),
    tuple(ParameterSpec(f"p{i}", (3,), ("R",)) for i in range(2)),
    (2, 1),
    64,
)


def play(subject: Subject, scenario: Scenario = SCENARIO) -> Run:
    run = SimBackend().run(scenario, subject)
    assert run.fault is None, run.fault
    return run


def in_backward(run: Run) -> Counter[tuple[str, str]]:
    """Count the operators of rank 0 in backward passes, by operator and stream."""
    return Counter(
        (event.operator, event.stream)
        for event in run.ranks[0].trace
        if isinstance(event, Access) and event.moment.phase == "backward"
    )


def test_operators_on_further_threads_of_a_rank_are_recorded() -> None:
    subject = resolve("studies.stand_ins.modes:SumsInAHook")
    expected = in_backward(play(subject))
    seen = in_backward(play(subject, replace(SCENARIO, backward="on_threads")))
    assert expected["aten.clone.default", "stream 1"] > 0
    assert seen == expected


def edges(run: Run) -> list[tuple[str, str]]:
    """The waits of streams on rank 0, outside of `unbind`."""
    events = [e for e in run.ranks[0].trace if e.moment.phase != "unbind"]
    marks = {e.mark: e.stream for e in events if isinstance(e, Mark)}
    waits = (e for e in events if isinstance(e, StreamWait))
    return [(wait.stream, marks[wait.mark]) for wait in waits]


class OnASideStream:
    """Runs every other micro-batch on a second stream, as pipelines do."""

    made: Callable[..., Any] = staticmethod(resolve("synchronizer").factory)

    def __init__(self, groups: Any, cap: float, accumulations: int) -> None:
        self._made = type(self).made(groups, cap, accumulations)
        self._stream = torch.cuda.Stream()
        for name in (
            "bind",
            "wait",
            "zero_grad",
            "unbind",
            "set_required_accumulations",
        ):
            setattr(self, name, getattr(self._made, name))

    def run_micro_batch(self, compute_loss: Any, *, is_last: bool) -> None:
        stream = torch.cuda.current_stream() if is_last else self._stream
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            compute_loss().backward()


def side_subject() -> Subject:
    capabilities = Capabilities(varying_accumulations=True)
    return Subject("side", OnASideStream, capabilities)


def test_a_loss_runs_where_the_subject_has_put_it() -> None:
    run = play(side_subject())
    accumulations = [
        (event.moment.micro_batch, event.stream)
        for event in run.ranks[0].trace
        if isinstance(event, Access) and event.operator == "aten.add_.Tensor"
    ]
    assert {stream for batch, stream in accumulations if batch == 1} == {"default"}
    first = [s for batch, s in accumulations if batch == 0]
    assert set(first[:2]) == {"stream 1"}


class TwoStreamsLater(PlainGrads):
    """Uses a second stream only in runs with `uses_two`."""

    uses_two = False

    def bind(self) -> None:
        if type(self).uses_two:
            self._stream = torch.cuda.Stream()
            shared = torch.zeros(2)
            with torch.cuda.stream(self._stream):
                shared.add_(1)


def test_traces_do_not_depend_on_what_was_played_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject, backend = Subject("two", TwoStreamsLater, Capabilities()), SimBackend()
    backend.run(SCENARIO, subject)
    monkeypatch.setattr(TwoStreamsLater, "uses_two", True)
    late, fresh = backend.run(SCENARIO, subject), SimBackend().run(SCENARIO, subject)
    assert [r.trace for r in late.ranks] == [r.trace for r in fresh.ranks]
    assert any(isinstance(event, Access) for event in late.ranks[0].trace)
