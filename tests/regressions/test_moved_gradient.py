"""The harness found it: the view took the last reference to memory that was being read."""

from dataclasses import replace

from syncverify.backends.sim import SimBackend
from syncverify.judge.properties import check
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import resolve


def test_a_moved_gradient_outlives_the_copy_on_another_stream() -> None:
    """`module.to()` makes it on the default stream; the step copies it on another one."""
    plain = Scenario(
        MeshSpec((1,), ("dp",)), (ParameterSpec("p0", (), None),), (1,), 1 << 20
    )
    scenario = replace(plain, events=("move",), launch="step_on_side_stream")
    found = resolve("synchronizer")
    run = SimBackend().run(scenario, found)
    assert check(scenario, run, found.capabilities) == []


def test_a_moved_gradient_outlives_the_sum_that_takes_its_place() -> None:
    """With a graph, autograd reads it on the stream of the step, and makes a new tensor."""
    plain = Scenario(
        MeshSpec((1,), ("dp",)), (ParameterSpec("p0", (), None),), (1,), 1 << 20
    )
    scenario = replace(
        plain, events=("move",), launch="step_on_new_stream", backward="create_graph"
    )
    found = resolve("synchronizer")
    run = SimBackend().run(scenario, found)
    assert check(scenario, run, found.capabilities) == []
