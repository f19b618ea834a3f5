"""Changes of parameters by the training program are its own doing, not the subject's."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate

from syncverify.backends.sim import SimBackend
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.judge.properties import judge_run
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.sim.machine import SimulatedMachine
from syncverify.subjects.subject import resolve


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
def test_torch_never_calls_hooks_of_an_exchanged_parameter(had_hook: bool) -> None:  # noqa: FBT001
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
