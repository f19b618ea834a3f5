"""Changes and errors of the training program are its own doing, not the subject's."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate

from syncverify.judge.properties import check, judge_run
from syncverify.playing.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.sim.machine import SimulatedMachine
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.subject import resolve
from syncverify.trace.records import SubjectCall
from syncverify.trace.run import Run


@pytest.mark.slow
def test_memory_that_a_cast_gives_up_is_no_mistake_of_the_subject() -> None:
    scenario = Scenario(
        mesh=MeshSpec((1,), ("dp",)),
        parameters=(ParameterSpec("p0", (4,), ("R",)),),
        accumulations=(1, 1),
        bucket_cap_bytes=1024,
        events=("move", "cast_before_zero"),
        launch="step_on_side_stream",
    )
    subject = resolve(PlainGrads)
    run = SimBackend().run(scenario, subject)
    assert run.fault is None
    assert judge_run(scenario, run, subject.capabilities).violations == []


@pytest.mark.parametrize("had_hook", [False, True])
def test_torch_never_calls_hooks_of_an_exchanged_parameter(had_hook) -> None:
    """The reason for a pair of `NEVER_TOGETHER`; if this fails, take the pair out."""
    calls = list[int]()

    def program(rank: int) -> None:
        mesh = init_device_mesh("cpu", (1,))
        data = DTensor.from_local(torch.ones(2), mesh, [Replicate()], run_check=False)
        parameter = nn.Parameter(data)
        if had_hook:
            parameter.register_hook(lambda gradient: gradient).remove()
        nn.ParameterList([parameter]).double()
        parameter.register_hook(lambda gradient: calls.append(rank))
        parameter.to_local().sum().backward()

    SimulatedMachine(1).run(program)
    assert calls == ([] if had_hook else [0])


UNDEFINED = ParameterSpec("p0", (2,), ("R",), used="undefined")
FROZEN = ParameterSpec("p1", (2,), ("R",), requires_grad=False)


def of_one_step(*parameters: ParameterSpec) -> Scenario:
    events = ("raise_in_backward",)
    return Scenario(MeshSpec((2,), ("dp",)), parameters, (1,), 2**20, events)


def ranks_that_wait(run: Run) -> Iterator[int]:
    """Yield the ranks on which a step ends as if its backward had not failed."""
    for number, rank in enumerate(run.ranks):
        calls = [event for event in rank.trace if isinstance(event, SubjectCall)]
        if "wait" in {call.moment.phase for call in calls}:
            yield number


@pytest.mark.parametrize(
    "others",
    [
        (FROZEN,),
        (
            ParameterSpec(
                "p1", (2,), ("R",), used="not_on_odd_ranks", requires_grad=False
            ),
        ),
    ],
    ids=["frozen", "frozen on one rank"],
)
def test_undefined_gradients_fail_as_well(others: tuple[ParameterSpec, ...]) -> None:
    scenario = of_one_step(UNDEFINED, *others)
    subject = resolve("synchronizer")
    run = SimBackend().run(scenario, subject)
    assert [*ranks_that_wait(run)] == []
    assert check(scenario, run, subject.capabilities) == []
