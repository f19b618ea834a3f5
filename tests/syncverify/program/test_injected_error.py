"""A backward that the training program makes fail does so on every rank."""

from collections.abc import Iterator

import pytest

from syncverify.backends.sim import SimBackend
from syncverify.judge.properties import check
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import resolve
from syncverify.trace.records import SubjectCall
from syncverify.trace.run import Run

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
        (),
        (FROZEN,),
        (ParameterSpec("p1", (2,), ("R",), used="not_on_odd_ranks"),),
        (
            ParameterSpec(
                "p1", (2,), ("R",), used="not_on_odd_ranks", requires_grad=False
            ),
        ),
    ],
    ids=["alone", "frozen", "on one rank", "frozen on one rank"],
)
def test_undefined_gradients_fail_as_well(others: tuple[ParameterSpec, ...]) -> None:
    scenario = of_one_step(UNDEFINED, *others)
    subject = resolve("synchronizer")
    run = SimBackend().run(scenario, subject)
    assert [*ranks_that_wait(run)] == []
    assert check(scenario, run, subject.capabilities) == []
