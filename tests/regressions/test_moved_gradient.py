"""The harness found it: the view took the last reference to memory that was being read."""

from dataclasses import replace

import pytest

from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from tests.programs import violations


@pytest.mark.parametrize(
    "changes",
    [
        # `module.to()` makes it on the default stream; the step copies it on another one.
        {"launch": "step_on_side_stream"},
        # With a graph, autograd reads it on the stream of the step, and makes a new tensor.
        {"launch": "step_on_new_stream", "backward": "create_graph"},
    ],
    ids=["copy", "sum"],
)
def test_a_moved_gradient_outlives_its_use_on_another_stream(
    changes: dict[str, str],
) -> None:
    specs = (ParameterSpec("p0", (), None),)
    plain = Scenario(MeshSpec((1,), ("dp",)), specs, (1,), 1 << 20)
    scenario = replace(plain, events=("move",), **changes)
    assert violations("synchronizer", scenario) == []
