"""In each order that the streams allow, a right subject comes to right gradients."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial

from syncverify.explain.witness.adversary import AdversarialRecorder, Lateness
from syncverify.judge.ordering.inversions import Inversion, ordered_after
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.properties.values import gradient_equals_reference
from syncverify.judge.reference import reference
from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.sim.machine import SimulatedMachine
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.subjects.subject import Subject
from syncverify.trace.records import Access, CollectiveLaunch, Moment
from syncverify.trace.run import Run

SCENARIO = Scenario(
    MeshSpec((2,), ("dp",)), (ParameterSpec("p0", (2,), ("R",)),), (2, 1), 64
)


class Right:
    """Uses all kinds of operators, on streams that wait as they must."""

    def __init__(self, groups: Any, _cap: float, _accumulations: int) -> None:
        (self.parameter,) = [p for group in groups for p in group]

    def bind(self) -> None:
        self.side = torch.cuda.Stream()

    def wait(self) -> None:
        main, gradient = torch.cuda.current_stream(), self.parameter.grad.to_local()
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            halves = list(torch._foreach_mul([gradient, gradient], 0.5))
            flat = torch.cat(halves)
            work = dist.all_reduce(flat, async_op=True)
            work.wait()
            first, second = flat.split(2)
            gradient.copy_(torch.add(first, second))
        main.wait_stream(self.side)

    def zero_grad(self) -> None:
        self.parameter.grad = None

    def unbind(self) -> None: ...


RIGHT = Subject("right", Right, Capabilities(varying_accumulations=True))


def play(recorders: list[RankRecorder]) -> Run:
    run = SimBackend().run(SCENARIO, RIGHT, DEFAULT_SCHEDULE, recorders)
    assert run.fault is None, run.fault
    return run


def lateness(index: int, until: int, run: Run) -> Lateness | None:
    """Put an event off, and all that is ordered after it."""
    traces = [rank_run.trace for rank_run in run.ranks]
    after = ordered_after(0, index, traces)
    if until > after.end:
        return None
    inversion = Inversion(0, after.until(until), frozenset(), until)
    return Lateness.of(inversion, traces[0])


@pytest.mark.long
def test_no_legal_order_harms_a_right_subject() -> None:
    run = play([RankRecorder(keeps_everything=True) for _ in range(2)])
    events = run.ranks[0].trace
    late = [n for n, e in enumerate(events) if isinstance(e, Access | CollectiveLaunch)]
    num_played = 0
    harmed = []
    for index in late:
        for until in (index + 4, len(events)):
            if (given := lateness(index, until, run)) is None:
                continue
            adversary = AdversarialRecorder(given)
            again = play([adversary, RankRecorder()])
            late_rank = adversary.corrected(again.ranks[0])
            again = replace(again, ranks=(late_rank, again.ranks[1]))
            if wrong(again):
                harmed.append((events[index], until))
            num_played += 1
    assert harmed == []
    assert num_played > 30  # 46 with torch 2.13; each release launches some others


def wrong(run: Run) -> list[str]:
    judgement = Judgement(SCENARIO, run, reference(SCENARIO, RIGHT.capabilities))
    return [finding.summary for finding in gradient_equals_reference(judgement)]


def test_what_is_late_in_no_legal_order_does_harm() -> None:
    """Else the test above would see nothing."""
    run = play([RankRecorder(keeps_everything=True) for _ in range(2)])
    events = run.ranks[0].trace
    copies = [n for n, e in enumerate(events) if is_copy_of_sums(e)]
    late = Inversion(0, frozenset(copies[:1]), frozenset(), len(events))
    again = play([AdversarialRecorder(Lateness.of(late, events)), RankRecorder()])
    assert len(wrong(again)) == 1


def is_copy_of_sums(event: object) -> bool:
    return (
        isinstance(event, Access)
        and event.operator == "aten.copy_.default"
        and event.stream == "stream 1"
    )


def late_in(program: Any, *numbers: int, num_ranks: int = 1) -> AdversarialRecorder:
    """Run a program, with some operators of rank 0 put off to the end."""
    nothing = frozenset[int]()
    late = Lateness(
        operators=frozenset(numbers),
        starts=nothing,
        operator_results=nothing,
        results=nothing,
        until=(99, 0, 0),  # more operators than a program has
        overwritten=None,
    )
    recorder = AdversarialRecorder(late)
    others = [RankRecorder() for _ in range(1, num_ranks)]
    machine = SimulatedMachine(num_ranks, recorders=[recorder, *others])

    def play(rank: int) -> None:
        with machine.recorders[rank].calling(Moment("bind", 0)):
            program()

    threads, stall = machine.run(play)
    assert (threads[0].error, stall) == (None, None)
    return recorder


def test_autograd_does_not_see_that_an_operator_ran_twice() -> None:
    leaf = torch.ones(2, requires_grad=True)

    def program() -> None:
        scale = torch.ones(2)
        scale.add_(1)
        (leaf * scale).sum().backward()

    late_in(program, 1)
    assert leaf.grad is not None


def test_an_adversary_gives_up_on_operators_that_communicate() -> None:
    def program() -> None:
        mesh = init_device_mesh("cpu", (2,))
        DTensor.from_local(torch.ones(2), mesh, [Partial()]).relu()

    assert late_in(program, *range(9), num_ranks=2).gave_up
