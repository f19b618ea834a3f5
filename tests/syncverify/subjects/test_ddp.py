"""DDP on streams: right on all that its caller may choose, if the caller is right."""

from typing import Any

import pytest

from syncverify.scenario.feature_table import WORDS
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.ddp import DistributedDataParallelSubject
from syncverify.subjects.subject import resolve
from tests.programs import identities, violations


def launched(launch: str) -> Scenario:
    """Return two steps in which the engine adds up the gradient of a parameter."""
    parameter = ParameterSpec("p0", (4,), ("R",), use="twice")
    mesh = MeshSpec((2,), ("dp",))
    return Scenario(mesh, (parameter,), (1, 1), 16, launch=launch)


@pytest.mark.parametrize("launch", WORDS["launch"])
def test_every_launch_is_promised_and_right(launch: str) -> None:
    ddp = resolve("ddp")
    assert ddp.capabilities.covers("launch", launch)
    assert violations(ddp, launched(launch)) == []


class DropsAtOnce(DistributedDataParallelSubject):
    """Drops gradients as torch's optimizers do: the creating stream waits for no reader."""

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


@pytest.mark.parametrize(
    ("launch", "expected"),
    [
        ("current_stream", set()),
        ("step_on_side_stream", {("memory_outlives_its_streams", "freed_in_use")}),
    ],
)
def test_a_caller_that_does_not_wait_is_reported(launch: str, expected: Any) -> None:
    assert identities(DropsAtOnce, launched(launch)) == expected
